"""`umbilical firewall`: the port for agents. `cli/main.py` says which module has which command."""
