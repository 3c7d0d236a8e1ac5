"""What is wrong with an Ignition config."""

from umbilical.fault import Fault


class IgnitionError(Fault):
    """The config cannot be read, or not be edited as asked."""
