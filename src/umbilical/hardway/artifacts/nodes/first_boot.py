"""What the machine-config server adds to a role's config when a machine asks it; here nobody asks, so we add it."""

import json
from typing import Any, Final

from umbilical.hardway.artifacts.inputs import NodeBase
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE

NODE_ANNOTATIONS: Final = "/etc/machine-config-daemon/node-annotations.json"
CONTENT: Final = "/etc/mcs-machine-config-content.json"
ENCAPSULATED: Final = "/etc/ignition-machine-config-encapsulated.json"
ANNOTATION: Final = "machineconfiguration.openshift.io"
_NAMES: Final = ("currentConfig", "desiredConfig", "firstPivotConfig")


def add_first_boot(parts: Parts, base: NodeBase) -> None:
    annotations = {f"{ANNOTATION}/{name}": base.name for name in _NAMES} | {f"{ANNOTATION}/state": "Done"}
    parts.files.add(NODE_ANNOTATIONS, _json(annotations), PUBLIC_MODE)
    # The server writes it for everybody to read, but the pull secret is in it; its reader is root.
    parts.files.add(CONTENT, base.machine_config, SECRET_MODE)
    parts.last.add(ENCAPSULATED, _json(encapsulated(base)), PUBLIC_MODE)


def encapsulated(base: NodeBase) -> dict[str, Any]:
    """Keep what Ignition cannot do (the OS image, kernel arguments), and leave of its config only the version."""
    machine_config: dict[str, Any] = json.loads(base.machine_config)
    version = json.loads(base.config)["ignition"]["version"]
    spec = {**machine_config.get("spec", {}), "config": {"ignition": {"version": version}}}
    return {**machine_config, "spec": spec}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
