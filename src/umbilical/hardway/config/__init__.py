"""cluster.yaml: read it, complete it with defaults, and show where each value comes from; pure."""
