"""The typed file that a cluster is built from: read, completed with defaults, shown with origins; pure."""
