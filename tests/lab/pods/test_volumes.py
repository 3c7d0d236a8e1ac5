"""Volumes of a pod: of the host, or written for it, seen whole and renewed."""

import asyncio
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, changed
from tests.support.pod_nodes import Objects, make_node

from umbilical.fault import PodWaiting
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.spec import HostPath, PathType, SourceKind
from umbilical.lab.pods.volumes import PodVolumes, WrittenFile, is_file_name, write_payload
from umbilical.lab.pods.volumes import provide as provide_path


def test_a_missing_path_is_made_where_the_type_says_so(tmp_path: Path) -> None:
    for kind in (PathType.DIRECTORY_OR_CREATE, PathType.ANY):
        assert provide_path("v", HostPath(str(tmp_path / f"new/{kind.name}"), kind)).is_dir()
    assert provide_path("v", HostPath(str(tmp_path / "a"), PathType.FILE_OR_CREATE)).is_file()
    with pytest.raises(PodWaiting, match="UMB833"):
        provide_path("v", HostPath(str(tmp_path / "b/c"), PathType.FILE_OR_CREATE))


def test_what_must_be_there_already_is_waited_for(tmp_path: Path) -> None:
    for kind in (PathType.DIRECTORY, PathType.FILE, PathType.SOCKET, PathType.CHARACTER_DEVICE, PathType.BLOCK_DEVICE):
        with pytest.raises(PodWaiting) as waiting:
            provide_path("v", HostPath(str(tmp_path / "a"), kind))
        assert waiting.value.reason == "ContainerCreating"
        assert not (tmp_path / "a").exists()


def test_a_path_of_the_wrong_kind_is_waited_for_and_the_right_one_taken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for kind in (PathType.DIRECTORY, PathType.DIRECTORY_OR_CREATE, PathType.SOCKET):
        with pytest.raises(PodWaiting, match="it is no"):
            provide_path("v", HostPath(str(tmp_path / "file"), kind))
    with pytest.raises(PodWaiting, match="it is not a File"):
        provide_path("v", HostPath(str(tmp_path), PathType.FILE_OR_CREATE))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.close()
    assert provide_path("v", HostPath(str(tmp_path / "s"), PathType.SOCKET)) == tmp_path / "s"
    assert provide_path("v", HostPath("/dev/null", PathType.CHARACTER_DEVICE)) == Path("/dev/null")


FILES = {"tls.crt": WrittenFile(b"certificate", 0o444), "deep/er/key": WrittenFile(b"key", 0o400)}


def seen(folder: Path) -> dict[str, bytes]:
    names = [path.relative_to(folder) for path in folder.rglob("*") if ".." not in str(path.relative_to(folder))]
    files = {str(name): (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    for top in os.listdir(folder):
        if not top.startswith("..") and (folder / top).is_dir():
            inner = [path for path in (folder / top).resolve().rglob("*") if path.is_file()]
            files |= {f"{top}/{path.relative_to((folder / top).resolve())}": path.read_bytes() for path in inner}
    return files


@pytest.mark.root
def test_files_lie_under_their_names_with_their_modes_for_whom_they_are(tmp_path: Path) -> None:
    assert write_payload(tmp_path, FILES)
    assert seen(tmp_path) == {"tls.crt": b"certificate", "deep/er/key": b"key"}
    assert stat.S_IMODE((tmp_path / "tls.crt").stat().st_mode) == 0o444
    assert stat.S_IMODE((tmp_path / "deep/er/key").stat().st_mode) == 0o400
    write_payload(tmp_path / "group", FILES, group=4711)
    key = (tmp_path / "group/deep/er/key").stat()
    assert (key.st_gid, stat.S_IMODE(key.st_mode)) == (4711, 0o440)


def test_a_new_version_replaces_the_old_one_wholly_and_only_if_it_differs(tmp_path: Path) -> None:
    write_payload(tmp_path, FILES)
    before = os.readlink(tmp_path / "..data")
    assert not write_payload(tmp_path, FILES)
    assert os.readlink(tmp_path / "..data") == before
    assert write_payload(tmp_path, {"tls.crt": WrittenFile(b"new", 0o444)})
    assert seen(tmp_path) == {"tls.crt": b"new"}
    assert len([name for name in os.listdir(tmp_path) if name.startswith("..") and name != "..data"]) == 1


NAMES = st.from_regex(r"[a-c]{1,2}(/[a-c]{1,2})?", fullmatch=True)


@given(st.lists(st.dictionaries(NAMES, st.binary(max_size=4), max_size=4), min_size=1, max_size=4))
def test_the_folder_always_shows_the_last_version(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("payload")
    for version in versions:
        files = {
            name: content for name, content in version.items() if not any(o.startswith(f"{name}/") for o in version)
        }
        write_payload(folder, {name: WrittenFile(content, 0o644) for name, content in files.items()})
        assert seen(folder) == files


SECRET = (SourceKind.SECRET, "default", "s")


def volumes_of(folder: Path, objects: Objects, **volume: Any) -> PodVolumes:
    metadata = {"name": "sample", "uid": "u", "labels": {"app": "x"}}
    document = changed(changed(MINIMAL, "metadata", **metadata), "spec", volumes=[{"name": "v", **volume}])
    return PodVolumes(pod(document), make_node(folder), objects)


def shown(volumes: PodVolumes) -> Mapping[str, str]:
    place = volumes.places["v"]
    return {path.name: path.read_text() for path in sorted(place.iterdir()) if not path.name.startswith("..")}


def provide(volumes: PodVolumes, now: float = 0.0) -> None:
    asyncio.run(volumes.provide(("10.92.0.2",), now))


def test_all_keys_or_the_chosen_ones_are_files_and_the_optional_may_be_missing(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SECRET] = {"a": b"1", "b": b"2", "../c": b"3", "..d": b"4"}
    volumes = volumes_of(tmp_path, objects, secret={"secretName": "s"})
    provide(volumes)
    assert shown(volumes) == {"a": "1", "b": "2"}
    chosen = volumes_of(tmp_path / "2", objects, secret={"secretName": "s", "items": [{"key": "a", "path": "x"}]})
    provide(chosen)
    assert shown(chosen) == {"x": "1"}
    volumes = volumes_of(tmp_path / "3", Objects(), secret={"secretName": "none", "optional": True})
    provide(volumes)
    assert shown(volumes) == {}


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
    with pytest.raises(PodWaiting) as waiting:
        provide(volumes_of(tmp_path, objects, **volume))
    assert waiting.value.code in ("UMB833", "UMB834")
    assert waiting.value.reason == "ContainerCreating"


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
    sources = [{"serviceAccountToken": {"path": "t", "audience": "api", "expirationSeconds": 1000}}]
    volumes = volumes_of(tmp_path, objects, projected={"sources": sources})
    seen = []
    for now in (0.0, 799.0, 801.0):
        provide(volumes, now)
        seen.append(shown(volumes)["t"])
    assert seen == ["token 1 of default", "token 1 of default", "token 2 of default"]
    assert objects.tokens == [("api", 1000)] * 2


def test_a_source_that_is_gone_leaves_its_files_until_the_pods_end(tmp_path: Path) -> None:
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
    volumes.remove()
    volumes.remove()
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == []


def test_a_key_becomes_a_file_only_if_it_can() -> None:
    assert [is_file_name(key) for key in ("a.b", "..a", "a/b", "", ".")] == [True, False, False, False, False]
