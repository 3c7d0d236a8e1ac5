"""CERTIFICATES: make and sign. Imports nothing of ours.

Pure apart from the key material that `cryptography` draws: the time is passed in, PEM goes out as bytes, and
writing files with the right mode is `host`'s business.
"""
