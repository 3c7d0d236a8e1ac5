"""Explanations: collected from the tables that the code uses, found by name, filled with a cluster's values."""
