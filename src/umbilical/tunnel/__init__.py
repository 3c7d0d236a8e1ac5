"""SOCKETS: the data plane on raw non-blocking sockets, asyncio for the control plane.

Imports `konnectivity` and `wire`. Kubernetes lives in `cluster`; `cli` introduces the two to each other.
"""
