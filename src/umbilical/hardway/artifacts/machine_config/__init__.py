"""Nodes' base configuration from the release's own programs: their input directory, the script, and its outcome."""
