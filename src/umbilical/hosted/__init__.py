"""A HOSTED CONTROL PLANE: its objects rendered and applied, its tunnel checked and pinged hop by hop.

`objects/` is pure. May import `manifests`, `checks`, `cluster`, `dialer`, `host`, `konnectivity`, `pki` and `tunnel`.
"""
