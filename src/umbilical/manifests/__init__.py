"""MANIFESTS: Kubernetes objects and file trees that more than one room renders, and the one YAML writer.

Pure. May import `pki`.
"""
