"""Rendered MachineConfigs, read as nodes' bases."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Role
from umbilical.assets.hardway.machine_config.rendered import read_base, read_bases
from umbilical.ignition.config import read_config

CONFIG: dict[str, Any] = {"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/a"}]}}


_LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)


def machine_config(config: Any, pool: str = "master") -> bytes:
    value = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": f"rendered-{pool}-0123456789abcdef"},
        "spec": {"config": config, "osImageURL": "quay.io/os@sha256:00"},
    }
    return yaml.safe_dump(value).encode()


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        {"raw": CONFIG},
        {"raw": json.dumps(CONFIG)},
        {"raw": base64.b64encode(json.dumps(CONFIG).encode()).decode()},
        json.dumps(CONFIG),
    ],
    ids=["object", "raw object", "raw JSON", "raw base64", "JSON"],
)
def test_the_ignition_config_is_found_in_every_form_that_it_is_written_in(config: Any) -> None:
    base = read_base(machine_config(config))
    assert json.loads(base.config) == CONFIG
    assert base.name == "rendered-master-0123456789abcdef"
    assert json.loads(base.machine_config)["spec"]["osImageURL"] == "quay.io/os@sha256:00"
    assert read_config(base.config).file("/etc/a") is not None


def test_each_pool_has_its_own() -> None:
    files = {
        "machine-configs/rendered-master-0123456789abcdef.yaml": machine_config(CONFIG),
        "machine-configs/rendered-worker-0123456789abcdef.yaml": machine_config(CONFIG, "worker"),
        "machine-configs/00-master.yaml": b"{}",
    }
    found = read_bases(files)
    assert [found[role].name.split("-")[1] for role in (Role.MASTER, Role.WORKER)] == ["master", "worker"]


@pytest.mark.parametrize(
    "content",
    [
        b"[",
        b"kind: Secret",
        machine_config(None),
        machine_config({"raw": "bad"}),
        machine_config({"raw": "{"}),
        machine_config({"raw": {"storage": {}}}),
        machine_config(CONFIG).replace(b"rendered-master", b"00-master"),
        machine_config(CONFIG).replace(b"3.4.0", b"2025-01-01"),
    ],
)
def test_what_is_none_is_refused_with_three_lines(content: bytes) -> None:
    with pytest.raises(AssetError) as caught:
        read_base(content)
    assert caught.value.code == "UMB718"
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "names", [(), ("rendered-master-1.yaml",), ("rendered-master-1.yaml", "rendered-master-2.yaml")]
)
def test_there_must_be_one_for_each_pool(names: tuple[str, ...]) -> None:
    with pytest.raises(AssetError) as caught:
        read_bases({name: machine_config(CONFIG) for name in names})
    assert "files are called like rendered-" in caught.value.why


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_a_base_or_a_fault(content: bytes) -> None:
    with suppress(AssetError):
        read_base(content)


@given(VALUES)
def test_any_config_is_a_base_or_a_fault(config: Any) -> None:
    with suppress(AssetError):
        read_base(machine_config(config))
