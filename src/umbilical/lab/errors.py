"""What the lab cannot do, in three lines."""

from umbilical.fault import Fault


class LabError(Fault):
    """The lab, or the machine under it, is not as needed."""
