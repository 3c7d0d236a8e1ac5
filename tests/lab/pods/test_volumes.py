"""Volumes that are written for a pod: chosen keys, fields, tokens that are renewed, and what is waited for."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.manifests import MINIMAL, changed
from tests.support.pod_nodes import Objects, make_node

from umbilical.lab.pods.errors import Waiting
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.spec import Kind
from umbilical.lab.pods.volumes import PodVolumes, is_file_name

SECRET = (Kind.SECRET, "default", "s")


def volumes_of(folder: Path, objects: Objects, **volume: Any) -> PodVolumes:
    metadata = {"name": "sample", "uid": "u", "labels": {"app": "x"}}
    document = changed(changed(MINIMAL, "metadata", **metadata), "spec", volumes=[{"name": "v", **volume}])
    return PodVolumes(pod(document), make_node(folder), objects)


def shown(volumes: PodVolumes) -> Mapping[str, str]:
    place = volumes.places["v"]
    return {path.name: path.read_text() for path in sorted(place.iterdir()) if not path.name.startswith("..")}


def provide(volumes: PodVolumes, now: float = 0.0) -> None:
    asyncio.run(volumes.provide(("10.92.0.2",), now))


def test_all_keys_or_the_chosen_ones_are_files(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SECRET] = {"a": b"1", "b": b"2", "../c": b"3", "..d": b"4"}
    volumes = volumes_of(tmp_path, objects, secret={"secretName": "s"})
    provide(volumes)
    assert shown(volumes) == {"a": "1", "b": "2"}
    chosen = volumes_of(tmp_path / "2", objects, secret={"secretName": "s", "items": [{"key": "a", "path": "x"}]})
    provide(chosen)
    assert shown(chosen) == {"x": "1"}


@pytest.mark.parametrize(
    "volume",
    [
        {"secret": {"secretName": "none"}},
        {"secret": {"secretName": "s", "items": [{"key": "none", "path": "x"}]}},
        {"configMap": {"name": "s"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"hostPath": {"path": "/no/such/path", "type": "File"}},
    ],
)
def test_what_is_not_there_is_waited_for(tmp_path: Path, volume: dict[str, Any]) -> None:
    objects = Objects()
    objects.known[SECRET] = {"a": b"1"}
    with pytest.raises(Waiting) as waiting:
        provide(volumes_of(tmp_path, objects, **volume))
    assert waiting.value.code in ("UMB833", "UMB834")
    assert waiting.value.reason == "ContainerCreating"


def test_what_is_optional_is_empty_meanwhile(tmp_path: Path) -> None:
    volumes = volumes_of(tmp_path, Objects(), secret={"secretName": "none", "optional": True})
    provide(volumes)
    assert shown(volumes) == {}


def test_fields_of_the_pod_are_files(tmp_path: Path) -> None:
    items = [
        {"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}},
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    ]
    volumes = volumes_of(tmp_path, Objects(), downwardAPI={"items": items})
    provide(volumes)
    assert shown(volumes) == {"ip": "10.92.0.2", "labels": 'app="x"'}


def test_a_token_is_renewed_before_it_ends_and_not_earlier(tmp_path: Path) -> None:
    objects = Objects()
    objects.signs = True
    sources = [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1000}}]
    volumes = volumes_of(tmp_path, objects, projected={"sources": sources})
    seen = []
    for now in (0.0, 799.0, 801.0):
        provide(volumes, now)
        seen.append(shown(volumes)["t"])
    assert seen == ["token 1 of default", "token 1 of default", "token 2 of default"]


def test_a_source_that_is_gone_leaves_its_files(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SECRET] = {"a": b"1"}
    volumes = volumes_of(tmp_path, objects, secret={"secretName": "s"})
    provide(volumes)
    del objects.known[SECRET]
    asyncio.run(volumes.refresh((), 0.0))
    assert shown(volumes) == {"a": "1"}
    objects.known[SECRET] = {"a": b"2"}
    asyncio.run(volumes.refresh((), 0.0))
    assert shown(volumes) == {"a": "2"}


def test_nothing_stays_after_the_end(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SECRET] = {"a": b"1"}
    volumes = volumes_of(tmp_path, objects, secret={"secretName": "s"})
    provide(volumes)
    volumes.remove()
    volumes.remove()
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == []


@pytest.mark.parametrize(
    ("key", "expected"), [("a.b", True), ("..a", False), ("a/b", False), ("", False), (".", False)]
)
def test_a_key_becomes_a_file_only_if_it_can(key: str, expected: bool) -> None:
    assert is_file_name(key) is expected
