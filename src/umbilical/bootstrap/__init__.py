"""THE BOOTSTRAP INTEGRATOR: the tunnel in an installer's output, from a typed spec to its effect.

`spec`, `names`, `render/`, `patch/`, `shell/` and `verify/` are pure: files in, files out. The rest acts: install
directories, nodes over SSH, teardown by the API, log bundles. May import `manifests`, `ignition`, `checks`, `cluster`,
`host` and `pki`.
"""
