"""THE API: the Kubernetes client, objects, token review and leases; lightkube is imported only when a client is made.

Imports nothing of ours: `TokenReviewer` and `LeaseCounter` match the Protocols of `tunnel.interfaces`, and `cli`
passes in what they must not import (the exception that means "refused", observers of API calls).
"""
