"""kube-controller-manager's static pod."""

from tests.support.control_plane_specs import DUAL, control_plane_spec

from umbilical.assets.control_plane_spec import ControlPlaneSpec
from umbilical.assets.manifests.controller_manager import controller_manager_pod


def _flags(spec: ControlPlaneSpec) -> list[str]:
    return list(controller_manager_pod(spec)["spec"]["containers"][0]["args"])


def test_nodes_bring_their_own_networks_unless_it_is_to_cut_them() -> None:
    assert "--allocate-node-cidrs=false" in _flags(control_plane_spec())
    flags = _flags(control_plane_spec(node_prefixes=(24,)))
    assert flags[-2:] == ["--allocate-node-cidrs=true", "--node-cidr-mask-size=24"]


def test_two_families_have_a_size_each() -> None:
    flags = _flags(control_plane_spec(DUAL, node_prefixes=(64, 24)))
    assert "--cluster-cidr=fd92::/48,10.92.0.0/16" in flags
    assert flags[-2:] == ["--node-cidr-mask-size-ipv6=64", "--node-cidr-mask-size-ipv4=24"]


def test_it_signs_with_the_authority_that_kubelets_trust() -> None:
    flags = _flags(control_plane_spec())
    assert "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key" in flags
    assert "--root-ca-file=/etc/kubernetes/pki/ca.crt" in flags


def test_it_is_probed_where_it_listens() -> None:
    container = controller_manager_pod(control_plane_spec())["spec"]["containers"][0]
    asked = container["livenessProbe"]["httpGet"]
    assert f"--bind-address={asked['host']}" in container["args"]
    assert f"--secure-port={asked['port']}" in container["args"]


def test_one_that_is_thrown_away_outlives_a_restart_of_kube_apiserver() -> None:
    assert "--leader-elect-renew-deadline=12s" in _flags(control_plane_spec())
    assert "--leader-elect-renew-deadline=50s" in _flags(control_plane_spec(is_throwaway=True))


def test_only_one_that_is_thrown_away_may_ask_as_fast_as_it_can() -> None:
    assert any(flag.startswith("--kube-api-qps=") for flag in _flags(control_plane_spec(is_throwaway=True)))
    assert not any(flag.startswith("--kube-api-") for flag in _flags(control_plane_spec()))
