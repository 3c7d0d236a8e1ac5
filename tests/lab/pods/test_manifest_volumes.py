"""Volumes: of the host, empty, or written for the pod."""

from typing import Any

import pytest
from tests.support.manifests import MINIMAL, changed

from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.spec import (
    EmptyDirectory,
    FieldFile,
    FieldOf,
    HostPath,
    Item,
    KeysOf,
    Kind,
    PathType,
    Payload,
    Token,
)


def volume(**fields: object) -> HostPath | EmptyDirectory | Payload:
    return pod(changed(MINIMAL, "spec", volumes=[{"name": "v", **fields}])).volumes[0].content


def test_host_paths_have_a_type_or_none() -> None:
    assert volume(hostPath={"path": "/a"}) == HostPath("/a", PathType.ANY)
    assert volume(hostPath={"path": "/a", "type": "Socket"}) == HostPath("/a", PathType.SOCKET)


def test_a_secret_has_its_keys_as_files() -> None:
    expected = Payload((KeysOf(Kind.SECRET, "s"),), 0o440)
    assert volume(secret={"secretName": "s", "defaultMode": 0o440}) == expected


def test_chosen_keys_have_paths_and_modes_of_their_own() -> None:
    items = [{"key": "k", "path": "a/b", "mode": 0o400}, {"key": "l", "path": "l"}]
    found = volume(configMap={"name": "c", "items": items, "optional": True})
    assert found == Payload((KeysOf(Kind.CONFIG_MAP, "c", (Item("k", "a/b", 0o400), Item("l", "l")), True),))


def test_an_empty_directory_may_be_in_memory() -> None:
    assert volume(emptyDir={}) == EmptyDirectory()
    assert volume(emptyDir={"medium": "Memory"}) == EmptyDirectory(is_in_memory=True)


def test_the_volume_that_the_api_gives_every_pod_is_read() -> None:
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    found = volume(projected={"defaultMode": 420, "sources": sources})
    assert found == Payload(
        (
            Token("token", "", 3607),
            KeysOf(Kind.CONFIG_MAP, "kube-root-ca.crt", (Item("ca.crt", "ca.crt"),)),
            FieldFile(FieldOf("metadata.namespace"), "namespace"),
        )
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"nfs": {"server": "a", "path": "/b"}},
        {"hostPath": {"path": "a"}},
        {"hostPath": {"path": "/a/../b"}},
        {"hostPath": {"path": "/a", "type": "Something"}},
        {"secret": {}},
        {"secret": {"secretName": "a/b"}},
        {"secret": {"secretName": "a", "defaultMode": 0o1777}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "/a"}]}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "a/../../b"}]}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "..data"}]}},
        {"projected": {"sources": [{"clusterTrustBundle": {}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}},
    ],
)
def test_a_volume_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PodError, match="UMB831"):
        volume(**fields)
