"""`umbilical firewall`: the port for agents. One module for each command."""
