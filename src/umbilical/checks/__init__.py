"""FACTS JUDGED: a check is an id, a reason, a cure and a predicate over facts. Imports nothing of ours.

Pure: whoever wants something checked gathers the facts first. What a check found is told as table, JSON or JUnit.
"""
