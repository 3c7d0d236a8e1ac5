"""THE API: the Kubernetes client, objects, token review and leases; lightkube is imported only when a client is made.

Imports nothing of ours: `TokenReviewer` and `LeaseCounter` fulfil the Protocols of `tunnel.interfaces` by shape,
and `cli` hands in what they must not know (which exception means "refused", whom to tell about calls).
"""
