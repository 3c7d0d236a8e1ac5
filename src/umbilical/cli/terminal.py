"""What the terminal behind standard output can show, and what its owner asked for."""

import os
import sys


def has_colour() -> bool:
    """FORCE_COLOR wins over NO_COLOR, which wins over what the output is."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def has_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
