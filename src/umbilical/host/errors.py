"""What the machine refused."""

from umbilical.fault import Fault


class HostError(Fault):
    """Something on this machine is not as needed."""
