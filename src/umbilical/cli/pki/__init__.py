"""`umbilical pki`: certificates. `cli/main.py` maps commands to modules."""
