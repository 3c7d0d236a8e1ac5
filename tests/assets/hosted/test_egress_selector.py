"""How kube-apiserver reaches the hosted cluster."""

import yaml
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.egress_selector import egress_config_map, egress_selector
from umbilical.assets.hosted.server_sidecar import client_mounts


def test_the_cluster_is_reached_by_http_connect_at_the_service_and_the_rest_directly() -> None:
    found = {one["name"]: one["connection"] for one in egress_selector(hosted_spec())["egressSelections"]}
    assert found["controlplane"] == found["etcd"] == {"proxyProtocol": "Direct"}
    assert found["cluster"]["proxyProtocol"] == "HTTPConnect"
    assert found["cluster"]["transport"]["tcp"]["url"] == "https://konnectivity-server-local:8090"


def test_every_file_that_it_names_is_mounted() -> None:
    tls = egress_selector(hosted_spec())["egressSelections"][2]["connection"]["transport"]["tcp"]["tlsConfig"]
    folders = {mount["mountPath"] for mount in client_mounts()}
    assert {path.rpartition("/")[0] for path in tls.values()} <= folders


def test_it_is_kept_under_hypershifts_names() -> None:
    found = egress_config_map(hosted_spec())
    assert found["metadata"]["name"] == "kas-egress-selector-config"
    assert yaml.safe_load(found["data"]["config.yaml"]) == egress_selector(hosted_spec())


def test_another_frontend_can_be_named() -> None:
    cluster = egress_selector(hosted_spec(), "https://127.0.0.1:8090")["egressSelections"][2]
    assert cluster["connection"]["transport"]["tcp"]["url"] == "https://127.0.0.1:8090"
