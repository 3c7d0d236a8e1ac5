"""Aggregated APIs as the hosted cluster sees them."""

import base64
import ipaddress
from typing import Any

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.aggregated_apis import aggregated_apis
from umbilical.assets.hosted.spec import AggregatedApi, ApiGroup

DUAL = AggregatedApi(
    "packageserver",
    (ipaddress.ip_address("172.30.1.1"), ipaddress.ip_address("fd00::5")),
    (ApiGroup("packages.operators.coreos.com", "v1", 2000, 15),),
)


def by_kind(*apis: AggregatedApi) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in aggregated_apis(hosted_spec(aggregated_apis=apis)):
        found.setdefault(one["kind"], []).append(one)
    return found


def test_a_service_without_selector_leads_to_addresses_of_the_management_cluster() -> None:
    found = by_kind(DUAL)
    service = found["Service"][0]
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == ("default", "packageserver")
    assert "selector" not in service["spec"]
    assert found["Endpoints"][0]["subsets"][0]["addresses"] == [{"ip": "172.30.1.1"}, {"ip": "fd00::5"}]
    assert [port["port"] for port in service["spec"]["ports"]] == [443]


def test_there_is_a_slice_for_each_family_and_kubernetes_makes_no_other() -> None:
    found = by_kind(DUAL)
    assert [(one["addressType"], one["endpoints"][0]["addresses"]) for one in found["EndpointSlice"]] == [
        ("IPv4", ["172.30.1.1"]),
        ("IPv6", ["fd00::5"]),
    ]
    for one in found["EndpointSlice"]:
        assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "packageserver"
    assert found["Endpoints"][0]["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] == "true"


def test_an_api_service_is_verified_by_the_given_authority() -> None:
    api = by_kind(DUAL)["APIService"][0]
    assert api["metadata"]["name"] == "v1.packages.operators.coreos.com"
    assert (api["spec"]["groupPriorityMinimum"], api["spec"]["versionPriority"]) == (2000, 15)
    assert b"BEGIN CERTIFICATE" in base64.b64decode(api["spec"]["caBundle"])
    assert "insecureSkipTLSVerify" not in api["spec"]


def test_nothing_is_there_before_an_address_is_known() -> None:
    assert by_kind(AggregatedApi("late", (), (ApiGroup("late.example"),))) == {}
