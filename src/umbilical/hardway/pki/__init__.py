"""The certificates of the hard way: one table, made, renewed, named."""
