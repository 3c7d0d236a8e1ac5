"""`umbilical stage`: a cluster the hard way. `cli/main.py` says which module has which command."""
