"""`umbilical bootstrap`: the tunnel in an installer's output. `cli/main.py` maps commands to modules."""
