"""Umbilical: the Konnectivity tunnel that exists only while a cluster is being born."""

import os
from typing import Final

__version__: Final = "0.1.0"

# Here, because it must be settled before the first module that has a compiled form is looked for.
if os.environ.get("UMBILICAL_PURE") == "1":
    from umbilical.pure import prefer_sources

    prefer_sources(__path__)
