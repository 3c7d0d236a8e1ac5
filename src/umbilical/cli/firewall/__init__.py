"""`umbilical firewall`: the port for agents. `cli/main.py` maps commands to modules."""
