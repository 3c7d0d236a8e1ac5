"""`umbilical hosted`: hosted control planes. `cli/main.py` says which module has which command."""
