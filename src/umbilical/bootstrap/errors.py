"""What stands in the way of the integrator."""

from umbilical.fault import Fault


class BootstrapError(Fault):
    """An install directory, a node or a log bundle is not as needed."""
