"""MANIFESTS: Kubernetes objects and file trees that more than one subject renders; YAML is written here once.

Pure. May import `pki`.
"""
