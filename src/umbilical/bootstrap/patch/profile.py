"""How a bootstrap config stands to the tunnel: without it, with the installer's own (off or on), or patched by us."""

from enum import Enum
from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, NATIVE, OWN, RECEIPT, STAGES
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG
from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config

FEATURE_GATES: Final = ("CRDCompatibilityRequirementOperator", "ClusterAPIMachineManagement")
"""Either switches the installer's own tunnel on; both need a preview feature set."""


class Profile(Enum):
    NONE = "none"
    NATIVE_OFF = "native-off"
    """The installer knows the tunnel and its feature gates are off: the files are there, the functions are empty."""
    NATIVE_ON = "native-on"
    PATCHED = "patched"


def profile_of(config: Config) -> Profile:
    """Classify by what the scripts do: all of the installer's asset files are there even when its tunnel is off."""
    bootkube = _text(config, BOOTKUBE)
    if config.file(RECEIPT) is not None or f". {OWN.library}\n" in bootkube:
        return Profile.PATCHED
    if config.file(NATIVE.library) is None and "konnectivity_" not in bootkube:
        return Profile.NONE
    has_flag = f"{OVERRIDE_FLAG}={NATIVE.override_in_render_container}" in bootkube
    library = _text(config, NATIVE.library)
    has_stages = any(stage in library for stage in STAGES)
    # Half of it counts as on: to patch beside a tunnel that may run is the worse mistake.
    return Profile.NATIVE_ON if has_flag or has_stages else Profile.NATIVE_OFF


def _text(config: Config, path: str) -> str:
    """Read a script for classifying only; one that cannot be read is refused elsewhere, with the reason."""
    file = config.file(path)
    if file is None:
        return ""
    try:
        return file.content().decode("utf-8", "replace")
    except IgnitionError:
        return ""
