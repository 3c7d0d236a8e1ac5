"""The shell scripts for the node: bootkube.sh sources `library.sh`, which executes `certificates.sh`.

They use only programs of RHCOS: bash, openssl, jq, ip, sed, oc and coreutils; no envsubst, no Python. `scripts.py`
fills in the spec's values.
"""
