"""The shell that runs on the node, as files of their own: `library.sh` is sourced, `certificates.sh` is executed.

A bare RHCOS has to do: bash, openssl, jq, ip, sed, oc and coreutils; no envsubst, no Python. `scripts.py` fills in
what the spec knows.
"""
