"""Kubernetes objects as plain dicts, one module per component. YAML is written in `assets/tree.py` alone."""
