"""`umbilical hosted`: hosted control planes. One module for each command."""
