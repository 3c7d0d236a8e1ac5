"""What cannot be rendered or patched."""

from umbilical.fault import Fault


class AssetError(Fault):
    """The wish contradicts itself, or the installer's output."""
