"""The certificates of a hosted control plane's tunnel."""
