"""Umbilical: the Konnectivity tunnel that exists only while a cluster is being born."""

from typing import Final

__version__: Final = "0.1.0"
