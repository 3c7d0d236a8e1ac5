"""The manifests of a cluster, which are applied in the order of their file names.

Namespaces come first, then CRDs, roles, configuration, and the objects that operators take over.
"""
