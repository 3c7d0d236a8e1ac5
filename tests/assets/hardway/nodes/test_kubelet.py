"""The kubelet's configuration and flags: alone on the bootstrap node, by certificate on members."""

import pytest
import yaml
from tests.support.hardway_nodes import content, inputs, node_config

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.unit_text import Command, commands
from umbilical.assets.hardway.nodes.kubelet import KUBELET, UNIT, configuration, taint_of, unit
from umbilical.assets.hardway.static_pods.seat import Seat

each_profile = pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)


def seat(profile: Profile, node: str, workers: int = 2) -> Seat:
    given = inputs(profile, 3 if workers else 1, workers)
    return Seat(given, given.cluster.node(node))


def command(profile: Profile, node: str, workers: int = 2) -> Command:
    config = node_config(node, profile, 3 if workers else 1, workers)
    (found,) = [one for one in config.units if one.name == UNIT]
    (written,) = commands(found)
    return written


@each_profile
def test_the_bootstrap_kubelet_stands_alone(profile: Profile) -> None:
    flags = command(profile, "bootstrap").flags
    assert "kubeconfig" not in flags
    assert "bootstrap-kubeconfig" not in flags
    written = configuration(seat(profile, "bootstrap"))
    assert written["authentication"]["webhook"] == {"enabled": False}
    assert written["authorization"] == {"mode": "AlwaysAllow"}
    assert written["staticPodPath"] == "/etc/kubernetes/manifests"
    assert "clientCAFile" not in str(written)


@each_profile
def test_a_member_asks_for_both_its_certificates(profile: Profile) -> None:
    flags = command(profile, "worker-0").flags
    assert flags["bootstrap-kubeconfig"] == "/etc/kubernetes/kubeconfig"
    assert flags["kubeconfig"] == "/var/lib/kubelet/kubeconfig"
    written = yaml.safe_load(content(node_config("worker-0", profile), layout.KUBELET_CONFIG))
    assert (written["rotateCertificates"], written["serverTLSBootstrap"]) == (True, True)
    assert written["authentication"]["x509"] == {"clientCAFile": "/etc/kubernetes/kubelet-ca.crt"}
    assert written["authentication"]["anonymous"] == {"enabled": False}
    assert written["clusterDNS"] == ["172.30.0.10"]


def test_upstream_kubelets_are_told_their_name_and_address_and_no_role() -> None:
    flags = command(Profile.KUBERNETES, "master-1").flags
    assert flags["hostname-override"] == "master-1.ocp4.example.com"
    assert flags["node-ip"] == "192.168.126.102"
    assert "node-labels" not in flags
    assert flags["register-with-taints"] == "node-role.kubernetes.io/control-plane=:NoSchedule"


def test_a_role_of_openshift_has_one_unit_for_all_its_nodes() -> None:
    first, second = (unit(seat(Profile.OPENSHIFT, node)) for node in ("master-0", "master-1"))
    assert first == second
    flags = command(Profile.OPENSHIFT, "master-0").flags
    assert "node-role.kubernetes.io/master=" in flags["node-labels"]
    assert flags["register-with-taints"] == "node-role.kubernetes.io/master=:NoSchedule"


@each_profile
def test_workers_and_lonely_masters_have_no_taint(profile: Profile) -> None:
    assert "register-with-taints" not in command(profile, "worker-0").flags
    assert "register-with-taints" not in command(profile, "master-0", workers=0).flags
    alone = inputs(profile, 1, 0).cluster
    assert taint_of(alone, alone.masters[0]) is None


@each_profile
def test_the_runtime_is_the_profiles_own(profile: Profile) -> None:
    is_openshift = profile is Profile.OPENSHIFT
    written = configuration(seat(profile, "master-0"))
    socket = "/var/run/crio/crio.sock" if is_openshift else "/run/containerd/containerd.sock"
    assert written["containerRuntimeEndpoint"] == f"unix://{socket}"
    text = unit(seat(profile, "master-0"))
    assert f"After=network-online.target {'crio' if is_openshift else 'containerd'}.service\n" in text


@each_profile
def test_the_directory_of_drop_ins_is_made(profile: Profile) -> None:
    config = node_config("bootstrap", profile)
    made = {entry["path"] for entry in config.value["storage"]["directories"]}
    assert command(profile, "bootstrap").flags["config-dir"] in made


def test_every_flag_has_its_reason() -> None:
    assert [row.name for row in KUBELET.flags if not (row.why and row.without)] == []
