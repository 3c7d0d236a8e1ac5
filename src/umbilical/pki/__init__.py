"""CERTIFICATES: make, sign, read, judge. Imports `checks` alone of ours.

Keys are drawn by `cryptography` or by the host's `openssl`, which a passed-in runner starts. The time is passed in
too, and PEM goes out as bytes: writing files with the right mode is `host`'s business. Only `directory` looks at files.
"""
