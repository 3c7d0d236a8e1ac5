"""What cannot be signed, read or used as a certificate, told to a user."""

from umbilical.fault import Fault


class PkiError(Fault):
    """Something about a certificate, its key or its authority."""
