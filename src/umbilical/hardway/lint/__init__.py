"""Lint rules for rendered artifacts: each finds one known mistake. They need no cluster."""
