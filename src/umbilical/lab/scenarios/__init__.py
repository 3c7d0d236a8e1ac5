"""The scenarios that `umbilical lab run` runs."""
