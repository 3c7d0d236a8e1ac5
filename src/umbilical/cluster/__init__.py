"""THE API: the Kubernetes client, token review and leases; lightkube is imported only when a client is made.

Imports nothing of ours: it fulfils the Protocols of `tunnel.interfaces` by shape.
"""
