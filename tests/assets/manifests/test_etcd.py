"""etcd's static pod."""

from typing import Any

from tests.support.control_plane_specs import DUAL, control_plane_spec

from umbilical.assets.manifests.etcd import etcd_pod, member_name


def _flags(pod: dict[str, Any]) -> dict[str, str]:
    flags = (flag.partition("=") for flag in pod["spec"]["containers"][0]["args"])
    return {name: value for name, _, value in flags}


def test_it_is_reached_by_its_node_and_listens_everywhere() -> None:
    flags = _flags(etcd_pod(control_plane_spec()))
    assert flags["--listen-client-urls"] == "https://0.0.0.0:2379"
    assert flags["--advertise-client-urls"] == "https://10.90.0.1:2379"
    assert flags["--initial-cluster"] == "etcd-bootstrap=https://10.90.0.1:2380"


def test_ipv6_addresses_stand_in_brackets() -> None:
    flags = _flags(etcd_pod(control_plane_spec(DUAL)))
    assert flags["--listen-peer-urls"] == "https://[::]:2380"
    assert flags["--initial-advertise-peer-urls"] == "https://[fd90::1]:2380"


def test_clients_and_peers_need_certificates() -> None:
    flags = _flags(etcd_pod(control_plane_spec()))
    assert flags["--client-cert-auth"] == flags["--peer-client-cert-auth"] == "true"
    assert flags["--trusted-ca-file"] == flags["--peer-trusted-ca-file"] == "/etc/kubernetes/pki/etcd/ca.crt"


def test_it_waits_for_the_disk_unless_it_is_thrown_away() -> None:
    assert "--unsafe-no-fsync" not in _flags(etcd_pod(control_plane_spec()))
    assert "--unsafe-no-fsync" in _flags(etcd_pod(control_plane_spec(is_throwaway=True)))


def test_the_bootstrap_member_has_the_name_that_openshift_looks_for() -> None:
    assert member_name(control_plane_spec()) == "etcd-bootstrap"
