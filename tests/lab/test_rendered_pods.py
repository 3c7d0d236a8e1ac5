"""Rendered pods as processes: their files and commands come from the objects alone."""

import base64
from typing import Any

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.rendered_pods import command, container, find, mounted_files

OBJECTS: list[dict[str, Any]] = [
    {"kind": "Secret", "metadata": {"name": "pair"}, "data": {"tls.key": base64.b64encode(b"key").decode()}},
    {"kind": "ConfigMap", "metadata": {"name": "trust"}, "data": {"a.crt": "A", "b.crt": "B"}},
]
SERVER: dict[str, Any] = {
    "name": "server",
    "command": ["/usr/bin/proxy-server"],
    "args": ["--mode=http-connect"],
    "volumeMounts": [
        {"name": "pair", "mountPath": "/etc/pair"},
        {"name": "all", "mountPath": "/etc/all"},
        {"name": "one", "mountPath": "/etc/one"},
        {"name": "tmp", "mountPath": "/tmp"},
    ],
}
POD: dict[str, Any] = {
    "containers": [{"name": "main"}, SERVER],
    "volumes": [
        {"name": "pair", "secret": {"secretName": "pair"}},
        {"name": "all", "configMap": {"name": "trust"}},
        {"name": "one", "configMap": {"name": "trust", "items": [{"key": "b.crt", "path": "ca.crt"}]}},
        {"name": "tmp", "emptyDir": {}},
    ],
}


def test_a_container_gets_the_files_of_its_mounts_and_no_other() -> None:
    assert mounted_files(POD, container(POD, "server"), OBJECTS) == {
        "/etc/pair/tls.key": b"key",
        "/etc/all/a.crt": b"A",
        "/etc/all/b.crt": b"B",
        "/etc/one/ca.crt": b"B",
    }
    assert mounted_files(POD, container(POD, "main"), OBJECTS) == {}


def test_a_program_is_named_without_its_place_in_the_image() -> None:
    assert command(SERVER) == ["proxy-server", "--mode=http-connect"]


def test_what_was_not_rendered_is_named() -> None:
    with pytest.raises(LabError, match="there is no Secret other") as caught:
        find(OBJECTS, "Secret", "other")
    assert caught.value.code == "UMB859"
