"""The certificates of a hosted control plane's tunnel: which there are, made, renewed, judged."""
