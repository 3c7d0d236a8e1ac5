"""What is a Service's name, and what only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.proxies.service_names import (
    ServiceName,
    absolute_names,
    is_of_the_cluster,
    is_of_the_world,
    parse_service_name,
)

DOMAIN = "cluster.local"
CONSOLE = ServiceName("monitoring", "console")


@pytest.mark.parametrize(
    "host",
    [
        "console.monitoring",
        "console.monitoring.svc",
        "console.monitoring.svc.",
        "console.monitoring.svc.cluster.local",
        "console.monitoring.svc.cluster.local.",
        "Console.Monitoring.SVC.Cluster.Local",
    ],
)
def test_a_service_is_known_by_its_short_and_its_full_name(host: str) -> None:
    assert parse_service_name(host, DOMAIN) == CONSOLE


@pytest.mark.parametrize(
    "host",
    [
        "console.monitoring.corp.example",
        "console.monitoring.cluster.local",
        "console.monitoring.svc.other.local",
        "www.console.monitoring.svc",
        "console",
        "",
        ".",
        "console.",
        "console.monitoring.",
        ".monitoring",
        "console..svc",
        "con_sole.monitoring",
        "-console.monitoring",
        "console/../../x.monitoring",
        "10.0.0.7",
        "127.1",
        "fd00::1",
        f"{'a' * 64}.monitoring",
    ],
)
def test_any_other_name_is_no_service(host: str) -> None:
    """HyperShift's proxies take the first two labels of every name for one."""
    assert parse_service_name(host, DOMAIN) is None


def test_the_domain_of_the_cluster_can_be_another() -> None:
    assert parse_service_name("a.b.svc.k8s.corp.example", "k8s.corp.example.") == ServiceName("b", "a")
    assert parse_service_name("a.b.svc.cluster.local", "k8s.corp.example") is None


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("idp.corp.example", ("idp.corp.example",)),
        ("IDP.corp.example.", ("idp.corp.example",)),
        ("localhost", ("localhost",)),
        ("console.monitoring", ("console.monitoring.svc.cluster.local", "console.monitoring")),
        ("example.com.", ("example.com",)),
        ("console.monitoring.svc", ("console.monitoring.svc.cluster.local",)),
        ("db-0.db.store.svc", ("db-0.db.store.svc.cluster.local",)),
        ("console.monitoring.svc.cluster.local", ("console.monitoring.svc.cluster.local",)),
    ],
)
def test_only_short_names_of_services_get_the_cluster_domain(host: str, asked: tuple[str, ...]) -> None:
    assert absolute_names(host, DOMAIN) == asked


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("kubernetes.default.svc", True),
        ("Kubernetes.Default.SVC.cluster.local.", True),
        ("etcd-0.cluster.local", True),
        ("idp.corp.example", False),
        ("example.com", False),
        ("svc", False),
        ("cluster.local.example", False),
    ],
)
def test_names_of_the_cluster_are_told_from_those_of_the_world(host: str, inside: bool) -> None:
    assert is_of_the_cluster(host, DOMAIN) is inside


@given(st.text(max_size=80))
def test_what_is_found_can_stand_in_a_path_of_the_api(host: str) -> None:
    found = parse_service_name(host, DOMAIN)
    if found is not None:
        assert not set(f"{found.name}{found.namespace}") & set("/.?#% ")
        assert found.name
        assert found.namespace


@pytest.mark.parametrize("host", ["example.com", "Example.COM.", "console.monitoring", "1.example.com", "0x.example"])
def test_a_name_of_the_world_means_the_same_to_everybody(host: str) -> None:
    assert is_of_the_world(host, DOMAIN)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "idp", "idp.", "localhost", "a.localhost.", "a.b.svc", "a.b.svc.cluster.local", "10.1", "1.2.3.4."),
        *("2852039166", "0xa9fea9fe", "a.0X7F", "a..b", ".a.b", "a.b..", "fd00::1", "::ffff:10.0.0.1", "a.b:80"),
    ],
)
def test_short_names_and_addresses_in_disguise_are_none_of_the_world(host: str) -> None:
    assert not is_of_the_world(host, DOMAIN)
