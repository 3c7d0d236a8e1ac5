"""The exported schema accepts what the reader accepts, key by key."""

from typing import Any

import jsonschema
import pytest
import yaml
from tests.support import hardway, hardway_config

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import MachinesKind, Profile
from umbilical.assets.hardway.config_keys import KEYS, Key
from umbilical.assets.hardway.config_reading import read_cluster
from umbilical.assets.hardway.config_schema import schema

SAMPLES: dict[str, Any] = {
    "machines": "libvirt",
    "name": "one",
    "baseDomain": "example.org",
    "konnectivity": True,
    "kubeProxy": "off",
    "release.image": "quay.io/x@sha256:00",
    "release.directory": "release",
    "release.version": "4.18.1",
    "release.repository": "registry.example.com/kubernetes",
    "release.tag": "v1.36.3",
    "networks.machine": "192.168.127.0/24",
    "networks.pods": "10.132.0.0/14",
    "networks.hostPrefix": 25,
    "networks.services": "172.31.0.0/16",
    "access.sshKeys": [hardway.SSH_KEY],
    "access.sshKeyFile": "~/.ssh/id_ed25519",
    "access.pullSecretFile": "pull-secret.json",
    "libvirt.poolDirectory": "/srv/pool",
    "libvirt.iso": "live.iso",
    "certificates.keyType": "ecdsa-p256",
}
BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("gateway", "dns", "apiVip", "ingressVip", "first", "last"), "192.168.126.60"),
    **dict.fromkeys(("address", "firstAddress"), "192.168.126.60"),
    "mac": "52:54:00:00:00:01",
    "interface": "enp1s0",
    "bridge": "virbr-x",
    "uplink": "eno1",
    "count": 3,
    "cpus": 8,
    "memoryMiB": 8192,
    "diskGiB": 60,
    "ignitionPort": 8081,
    "statsPort": 9001,
    "network": "one",
    "pool": "one",
    "shortHours": 30,
    "budgetHours": 5,
}
OPTIONAL = [key for key in KEYS if not key.is_needed]


def sample(key: Key) -> Any:
    return SAMPLES[key.path] if key.path in SAMPLES else BY_NAME[key.path.rpartition(".")[2]]


def home(key: Key) -> str:
    return "kubernetes" if key.only is Profile.KUBERNETES else "openshift"


def with_key(key: Key, name: str | None = None, profile: str | None = None) -> dict[str, Any]:
    """A file that says this one key, perhaps under another name."""
    path = key.path if name is None else f"{key.path.rpartition('.')[0]}.{name}".lstrip(".")
    value = sample(key)
    if "[]." in path:
        path, _, last = path.partition("[].")
        value = [{last: value}]
    return hardway_config.document(profile or home(key), **{path.replace(".", "__"): value})


def is_valid(document: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(document))


def is_readable(document: dict[str, Any]) -> bool:
    try:
        read_cluster(yaml.safe_dump(document).encode())
    except AssetError:
        return False
    return True


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("key", OPTIONAL, ids=lambda key: key.path)
def test_schema_and_reader_accept_every_key_of_the_table(key: Key) -> None:
    document = with_key(key)
    assert is_valid(document)
    assert is_readable(document)


@pytest.mark.parametrize("key", OPTIONAL, ids=lambda key: key.path)
def test_schema_and_reader_refuse_a_key_beside_every_key(key: Key) -> None:
    document = with_key(key, "unheardOf")
    assert not is_valid(document)
    assert not is_readable(document)


@pytest.mark.parametrize("key", [key for key in KEYS if key.only is not None], ids=lambda key: key.path)
def test_schema_and_reader_refuse_a_key_where_it_means_nothing(key: Key) -> None:
    elsewhere = "openshift" if key.only is Profile.KUBERNETES else "kubernetes"
    document = with_key(key, profile=elsewhere)
    assert not is_valid(document)
    assert not is_readable(document)
    if key.only is MachinesKind.LIBVIRT:
        document["machines"] = "libvirt"
        assert is_valid(document)
        assert is_readable(document)


@pytest.mark.parametrize("key", [key for key in KEYS if key.is_needed], ids=lambda key: key.path)
def test_schema_and_reader_miss_what_is_needed(key: Key) -> None:
    document = hardway_config.document()
    del document[key.path]
    assert not is_valid(document)
    assert not is_readable(document)


@pytest.mark.parametrize(
    "changes",
    [
        *({"name": "A"}, {"name": 5}, {"networks__hostPrefix": 129}, {"nodes__masters__count": "3"}),
        *({"konnectivity": "maybe"}, {"access__sshKeys": "x"}, {"libvirt__uplink": "a b"}, {"nodes": []}),
        *({"networks__machine": "10.0.0.0"}, {"kind": "Pod"}, {"profile": "lab"}, {"nodes__workers__machines": {}}),
    ],
    ids=str,
)
def test_schema_and_reader_refuse_wrong_values(changes: dict[str, Any]) -> None:
    document = hardway_config.document(**changes)
    assert not is_valid(document)
    assert not is_readable(document)


@pytest.mark.parametrize("path", ["networks", "networks__dhcp", "nodes__masters__machines", "name"])
def test_schema_and_reader_take_nothing_for_absence(path: str) -> None:
    nothing: dict[str, Any] = {path: None}
    document = hardway_config.document("openshift", **nothing)
    assert is_valid(document)
    assert is_readable(document)
