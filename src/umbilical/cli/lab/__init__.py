"""`umbilical lab`: a cluster being born on this machine. One module for each command."""
