"""What a server and an agent tell about themselves: one document, the state judged from it, and who may read it.

docs/status.md describes it; docs/status.schema.json is its schema. Nothing here runs until somebody asks.
"""
