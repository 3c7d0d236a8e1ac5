"""How the hard way fails: three lines with a code, and whether waiting, mending or stopping is the answer."""

from umbilical.fault import Fault


class HardwayError(Fault):
    """Something is wrong and has to be mended."""


class StageTimeout(HardwayError):
    """A wait was in vain; trying again may help."""


class Unsafe(HardwayError):
    """Going on would lose something that cannot be brought back; nothing was done."""
