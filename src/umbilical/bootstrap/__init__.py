"""THE INTEGRATOR AT WORK: install directories, bootstrap nodes over SSH, the API, log bundles.

Gathers facts and carries out what `assets` decided. May import `assets`, `ignition`, `checks`, `cluster`, `host` and
`pki`.
"""
