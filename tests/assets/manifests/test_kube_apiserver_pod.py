"""kube-apiserver's static pod."""

from typing import Any

from tests.support.control_plane_specs import DUAL, control_plane_spec

from umbilical.assets.manifests.kube_apiserver import read_static_pod
from umbilical.assets.manifests.kube_apiserver_pod import kube_apiserver_pod
from umbilical.assets.tree import yaml_bytes


def _flags(pod: dict[str, Any]) -> dict[str, str]:
    flags = (flag.partition("=") for flag in pod["spec"]["containers"][0]["args"])
    return {name: value for name, _, value in flags}


def test_it_is_read_as_a_kube_apiserver() -> None:
    pod = kube_apiserver_pod(control_plane_spec())
    assert read_static_pod(yaml_bytes(pod)) == pod


def test_it_dials_endpoints_and_kubelets_by_address() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec()))
    assert flags["--enable-aggregator-routing"] == "true"
    assert flags["--kubelet-preferred-address-types"] == "InternalIP"


def test_aggregated_apis_accept_the_name_that_it_shows_them() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec()))
    assert flags["--requestheader-allowed-names"] == "front-proxy-client"
    assert flags["--proxy-client-cert-file"] == "/etc/kubernetes/pki/front-proxy-client.crt"


def test_two_families_give_two_service_ranges_the_nodes_own_first() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec(DUAL)))
    assert flags["--service-cluster-ip-range"] == "fd93::/112,10.93.0.0/16"
    assert flags["--bind-address"] == "::"
    assert flags["--advertise-address"] == "fd90::1"


def test_another_nodes_etcd_is_asked_where_it_has_none() -> None:
    urls = ("https://10.90.0.1:2379", "https://10.90.0.2:2379")
    flags = _flags(kube_apiserver_pod(control_plane_spec(has_etcd=False, etcd_urls=urls)))
    assert flags["--etcd-servers"] == ",".join(urls)


def test_it_is_probed_at_the_address_that_it_advertises_as_nobody() -> None:
    pod = kube_apiserver_pod(control_plane_spec(api_port=7443))
    container = pod["spec"]["containers"][0]
    asked = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {(one["scheme"], one["host"], one["port"]) for one in asked} == {("HTTPS", "10.90.0.1", 7443)}
    assert [one["path"] for one in asked] == ["/livez", "/livez?exclude=etcd", "/readyz"]
    assert _flags(pod)["--anonymous-auth"] == "true"


def test_one_that_lasts_leaves_load_balancers_time() -> None:
    pod = kube_apiserver_pod(control_plane_spec())
    assert _flags(pod)["--shutdown-delay-duration"] == "70s"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 135
    assert _flags(kube_apiserver_pod(control_plane_spec(is_throwaway=True)))["--shutdown-delay-duration"] == "0s"
