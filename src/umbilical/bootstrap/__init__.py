"""THE BOOTSTRAP INTEGRATOR: adds the tunnel to an installer's output, checks it and removes it.

`spec`, `names`, `render/`, `patch/`, `shell/` and `verify/` are pure: files in, files out. The rest does I/O:
install directories, nodes over SSH, teardown through the API, log bundles. May import `manifests`, `ignition`,
`checks`, `cluster`, `host` and `pki`.
"""
