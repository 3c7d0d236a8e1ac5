"""`umbilical pki`: certificates. `cli/main.py` says which module has which command."""
