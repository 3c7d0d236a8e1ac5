"""What the render commands leave behind, as the base that a node's Ignition file is merged onto."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts.inputs import NodeBase
from umbilical.hardway.config.cluster import Role

FILE: Final = re.compile(r"(?:.*/)?rendered-(master|worker)-[0-9a-z]+\.ya?ml")
_NAME: Final = re.compile(r"rendered-(?:master|worker)-[0-9a-z]+")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_bases(files: Mapping[str, bytes]) -> dict[Role, NodeBase]:
    """Read the rendered MachineConfigs among some files, one for each pool.

    Raises:
        RenderError: UMB718, there is not exactly one for each, or one is unreadable.
    """
    found: dict[Role, NodeBase] = {}
    for role in (Role.MASTER, Role.WORKER):
        names = [name for name in sorted(files) if (match := FILE.fullmatch(name)) and match[1] == role.value]
        if len(names) != 1:
            raise _unusable(f"{len(names)} files are called like rendered-{role.value}-0123456789abcdef.yaml")
        found[role] = read_base(files[names[0]])
    return found


def read_base(content: bytes) -> NodeBase:
    """Read one rendered MachineConfig.

    Raises:
        RenderError: UMB718, it is none.
    """
    try:
        value = yaml.load(content, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict) or value.get("kind") != "MachineConfig":
        raise _unusable("its kind is not MachineConfig")
    name = _member(value, "metadata").get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _unusable("its name is not like rendered-master-0123456789abcdef")
    config = _config(_member(value, "spec").get("config"))
    return NodeBase(_json(config), _json(value), name)


def _config(value: Any) -> dict[str, Any]:
    """Find the Ignition config: the field itself, or below `raw`, there as an object, as JSON or as its base64."""
    found = value["raw"] if isinstance(value, dict) and "raw" in value else value
    if isinstance(found, str):
        found = _decoded(found)
    if not isinstance(found, dict) or not isinstance(found.get("ignition"), dict):
        raise _unusable("spec.config holds no Ignition config")
    return found


def _decoded(text: str) -> Any:
    try:
        if not text.lstrip().startswith("{"):
            text = base64.b64decode(text, validate=True).decode()
        return json.loads(text)
    except (ValueError, RecursionError, binascii.Error):
        raise _unusable("spec.config.raw is neither JSON nor its base64") from None


def _member(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise _unusable(f"it holds what JSON has no form for: {error}") from None


def _unusable(why: str) -> RenderError:
    remedy = "run machine-config/render.sh again and look at what it prints: umbilical explain 04"
    return RenderError("UMB718", "a rendered MachineConfig cannot be used", why, remedy)
