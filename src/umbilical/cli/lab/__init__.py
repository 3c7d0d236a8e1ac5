"""`umbilical lab`: a test cluster on this machine. `cli/main.py` maps each command to its module."""
