"""The egress selector is read as kube-apiserver reads it: what that would refuse at its start is refused here."""

import ipaddress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.manifests.egress import egress_selector
from umbilical.assets.spec import Mode, Shape, for_shape
from umbilical.lab.egress_selector import DIRECT, Egress, EgressProtocol, cluster_egress
from umbilical.lab.errors import LabError


def selector(**connection: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def read(value: Any) -> Egress:
    return cluster_egress(yaml.safe_dump(value).encode(), "egress.yaml")


UDS = {"uds": {"udsName": "/run/server.socket"}}


@pytest.mark.parametrize("mode", list(Mode))
def test_what_umbilical_renders_leads_to_the_server_s_socket_in_its_protocol(mode: Mode) -> None:
    spec = for_shape(Shape.KUBERNETES, mode=mode, node_ip=ipaddress.ip_address("10.91.0.10"))

    egress = read(egress_selector(spec))
    assert egress.protocol.value == mode.proxy_protocol
    assert egress.socket == spec.socket_in_kube_apiserver


def test_a_file_without_the_cluster_leaves_it_direct() -> None:
    value = selector()
    value["egressSelections"] = [{"name": "etcd", "connection": {"proxyProtocol": "Direct"}}]
    assert read(value) == DIRECT


def test_both_protocols_are_known() -> None:
    assert read(selector(proxyProtocol="GRPC", transport=UDS)) == Egress(EgressProtocol.GRPC, "/run/server.socket")
    assert read(selector(proxyProtocol="HTTPConnect", transport=UDS)).protocol is EgressProtocol.HTTP_CONNECT


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no mapping"),
        ([], "no mapping"),
        ({**selector(), "kind": "Egress"}, "no EgressSelectorConfiguration"),
        ({**selector(), "apiVersion": "apiserver.k8s.io/v1"}, "no EgressSelectorConfiguration"),
        ({**selector(), "egress": 1}, "unknown field 'egress'"),
        ({**selector(), "egressSelections": {}}, "no list"),
        (selector(), "proxyProtocol of cluster is 'None'"),
        (selector(proxyProtocol="grpc", transport=UDS), "'grpc', not one of"),
        (selector(proxyProtocol="Direct", transport=UDS), "Direct and has a transport"),
        (selector(proxyProtocol="GRPC"), "no mapping"),
        (selector(proxyProtocol="HTTPConnect", transport={"tcp": {"url": "https://x"}}), "not a Unix socket"),
        (selector(proxyProtocol="GRPC", transport={"uds": {"udsName": "relative"}}), "no absolute path"),
        (selector(proxyProtocol="GRPC", transport={"uds": {"udsName": "/x", "mode": 1}}), "unknown field 'mode'"),
    ],
)
def test_what_kube_apiserver_would_refuse_is_refused_with_the_reason(value: Any, why: str) -> None:
    with pytest.raises(LabError) as caught:
        read(value)
    assert caught.value.code == "UMB885"
    assert "egress.yaml" in caught.value.what
    assert why in caught.value.why


def test_a_name_may_stand_there_only_once() -> None:
    value = selector(proxyProtocol="GRPC", transport=UDS)
    value["egressSelections"] *= 2
    with pytest.raises(LabError, match="may be there once"):
        read(value)


def test_a_file_that_is_too_long_is_not_even_parsed() -> None:
    with pytest.raises(LabError, match="more than"):
        cluster_egress(b"#" * (1 << 20) + b"#", "egress.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(LabError, match="UMB885"):
        cluster_egress(content, "egress.yaml")


_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.sampled_from(["cluster", "GRPC", "/x"])
_keys = st.sampled_from(
    ["apiVersion", "kind", "egressSelections", "name", "connection", "proxyProtocol", "transport", "uds", "udsName"]
)


@given(st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3)))
def test_any_structure_below_is_read_or_refused(value: Any) -> None:
    document = {**selector(), "egressSelections": [{"name": "cluster", "connection": value}]}
    try:
        egress = read(document)
    except LabError:
        return
    assert (egress.protocol is EgressProtocol.DIRECT) == (egress.socket == "")
