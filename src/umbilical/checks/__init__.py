"""CHECKS: a check is an id, a reason, a fix and a predicate over facts. Imports nothing of ours.

Pure: the caller gathers the facts. Results are printed as table, JSON or JUnit.
"""
