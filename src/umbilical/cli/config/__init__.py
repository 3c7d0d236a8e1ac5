"""`umbilical config`: a cluster's config file. One module for each command."""
