"""Kubernetes objects in their plainest forms, as dicts. Who owns an object decides its labels, not this module."""

import base64
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def manifest(api_version: str, kind: str, head: Mapping[str, Any], **body: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(head), **body}


def secret(head: Mapping[str, Any], data: Mapping[str, bytes], kind: str = "Opaque") -> Object:
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    return manifest("v1", "Secret", head, type=kind, data=encoded)


def config_map(head: Mapping[str, Any], data: Mapping[str, str]) -> Object:
    return manifest("v1", "ConfigMap", head, data=dict(data))
