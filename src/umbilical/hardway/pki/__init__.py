"""The certificates of a hard way cluster: one table, from which they are issued and renewed."""
