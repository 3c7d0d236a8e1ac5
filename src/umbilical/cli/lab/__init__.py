"""`umbilical lab`: a cluster being born on this machine. `cli/main.py` says which module has which command."""
