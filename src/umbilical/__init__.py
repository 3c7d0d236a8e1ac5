"""Umbilical: a Konnectivity tunnel for clusters that are being installed."""

import os
from typing import Final

__version__: Final = "0.2.0"

# Here, because it must run before any module that has a compiled form is imported.
if os.environ.get("UMBILICAL_PURE") == "1":
    from umbilical.pure import prefer_sources

    prefer_sources(__path__)
