"""Manifests of a hosted control plane's tunnel, from one typed spec."""
