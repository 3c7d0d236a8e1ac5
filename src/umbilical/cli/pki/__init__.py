"""`umbilical pki`: certificates. One module for each command."""
