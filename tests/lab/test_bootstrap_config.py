"""The lab's bootstrap.ign is one that Ignition takes, that our own patch takes, and that carries no tunnel."""

import json
from pathlib import Path

import pytest
from tests.support.ignition_validate import validate
from tests.support.lab_config import lab_config, lab_topology

from umbilical.assets.bootkube.cluster_facts import cluster_facts
from umbilical.cli.main import run
from umbilical.ignition.config import faults, read_config
from umbilical.lab.bootstrap_config import IMAGES_FILE, PAYLOAD
from umbilical.lab.topology import Family


@pytest.mark.parametrize("family", list(Family))
def test_it_is_a_sound_config_that_says_what_cluster_it_is_of(family: Family) -> None:
    config = read_config(lab_config(family))
    topology = lab_topology(family)

    assert faults(config) == []
    facts = cluster_facts(config)
    assert facts.platform == "none"
    assert facts.machine_networks == topology.machine_networks
    assert facts.service_networks == topology.service_networks


def test_static_pods_wait_for_the_script_and_keys_are_for_root_alone() -> None:
    config = read_config(lab_config())
    paths = [file.path for file in config.files]

    assert [path for path in paths if path.startswith("/etc/kubernetes/manifests/")] == []
    names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    assert [path for path in paths if path.startswith(f"{PAYLOAD}/")] == [
        *(f"{PAYLOAD}/{name}.yaml" for name in names),
        IMAGES_FILE,
    ]
    assert [file.path for file in config.files if b"PRIVATE KEY" in file.content() and file.mode != 0o600] == []
    images = config.file(IMAGES_FILE)
    assert images is not None
    assert json.loads(images.content()) == {"apiserver-network-proxy": "localhost/umbilical:lab"}


@pytest.mark.real("ignition-validate")
def test_ignition_itself_takes_it() -> None:
    validate(lab_config())


@pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6])
def test_the_patch_takes_it_and_verify_is_content(
    family: Family, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bootstrap.ign").write_bytes(lab_config(family))
    assert run(["bootstrap", "patch", str(tmp_path / "bootstrap.ign"), "--out", str(tmp_path / "patched.ign")]) == 0
    assert "bootkube.sh of 4.18 recognised" in capsys.readouterr().err
    assert run(["bootstrap", "verify", str(tmp_path / "patched.ign")]) == 0
    assert "0 failed" in capsys.readouterr().out
