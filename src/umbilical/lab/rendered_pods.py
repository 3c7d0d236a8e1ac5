"""Rendered pods as plain processes: what their containers mount, as files of a node, and what they run.

For a management cluster that the lab does not have: its Secrets and ConfigMaps are taken from the rendered objects
themselves. No manifest is changed for it.
"""

import base64
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from umbilical.fault import LabError

Object = Mapping[str, Any]


def find(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Find one of them.

    Raises:
        LabError: it was not rendered.
    """
    for one in objects:
        if (one["kind"], one["metadata"]["name"]) == (kind, name):
            return one
    why = "what was rendered does not hold it"
    raise LabError("UMB859", f"there is no {kind} {name}", why, "umbilical hosted render, and look for it")


def container(pod: Object, name: str) -> Object:
    return next(one for one in pod["containers"] if one["name"] == name)


def command(of: Object) -> list[str]:
    """Say what it runs; the program is found on a node's PATH under the name that it has in the image."""
    return [posixpath.basename(of["command"][0]), *of["command"][1:], *of.get("args", [])]


def mounted_files(pod: Object, of: Object, objects: Iterable[Object]) -> dict[str, bytes]:
    """Return the files that a container sees of Secrets and ConfigMaps, by their paths."""
    known, volumes = list(objects), {volume["name"]: volume for volume in pod["volumes"]}
    files: dict[str, bytes] = {}
    for mount in of.get("volumeMounts", []):
        for name, content in _content(volumes[mount["name"]], known).items():
            files[posixpath.join(mount["mountPath"], name)] = content
    return files


def _content(volume: Object, objects: list[Object]) -> dict[str, bytes]:
    if "secret" in volume:
        data = find(objects, "Secret", volume["secret"]["secretName"])["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}
    if "configMap" in volume:
        source = volume["configMap"]
        data = find(objects, "ConfigMap", source["name"])["data"]
        # Without items every key is a file of its own name.
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        return {item["path"]: data[item["key"]].encode() for item in items}
    return {}
