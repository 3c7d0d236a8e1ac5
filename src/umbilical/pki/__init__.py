"""CERTIFICATES: make, sign, read, check. Imports only `checks` of ours.

Keys come from `cryptography` or from the host's `openssl`, started by a passed-in runner. The time is passed in too.
PEM is returned as bytes: `host` writes the files. Only `directory` reads files.
"""
