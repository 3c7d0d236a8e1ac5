"""`umbilical stage`: a cluster the hard way. One module for each command."""
