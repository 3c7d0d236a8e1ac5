"""What kept the commands for hosted control planes from their work, told in three lines."""

from umbilical.fault import Fault


class HostedError(Fault):
    """Input, files or the world are not as the command needs them."""
