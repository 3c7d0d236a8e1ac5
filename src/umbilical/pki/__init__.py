"""CERTIFICATES: make and sign; the time is passed in. Pure apart from the key material that `cryptography` draws."""
