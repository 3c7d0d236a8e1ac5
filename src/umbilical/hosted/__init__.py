"""A HOSTED CONTROL PLANE: renders and applies its objects, checks its tunnel, pings through it hop by hop.

`objects/` is pure. May import `manifests`, `checks`, `cluster`, `dialer`, `host`, `konnectivity`, `pki` and `tunnel`.
"""
