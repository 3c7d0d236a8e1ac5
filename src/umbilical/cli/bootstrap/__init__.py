"""`umbilical bootstrap`: the tunnel in an installer's output. `cli/main.py` says which module has which command."""
