"""Server and agent: the data plane on raw non-blocking sockets, the control plane on asyncio.

Imports `konnectivity` and `wire`. Kubernetes access is in `cluster`; `cli` connects the two.
"""
