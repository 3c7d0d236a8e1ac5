"""What an inspection of a lab's infrastructure sees: each fact on its own, and what is wrong in words."""

from collections.abc import Iterator

import pytest
from tests.support.hardway_lab import PROGRAMS, built, small_cluster

from umbilical.host.machine_records import Probe
from umbilical.lab.hardway_balancer import CONFIG
from umbilical.lab.hardway_inspection import inspect
from umbilical.lab.hardway_topology import HOST
from umbilical.lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.timeout(240), pytest.mark.real(*PROGRAMS)]


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("inspection") / "lab"
    with built(place, small_cluster()):
        yield Lab.open(place)


def wrong(lab: Lab) -> dict[str, Probe]:
    return {probe.id: probe for probe in inspect(lab, small_cluster()) if not probe.is_right}


def test_a_fresh_lab_is_right_in_every_point(lab: Lab) -> None:
    assert wrong(lab) == {}


def test_a_config_with_warnings_and_a_port_that_nobody_has_are_two_faults(lab: Lab) -> None:
    config = lab.read(HOST, CONFIG).replace(b":6443\n", b":6444\n", 1) + b"backend bad\n mode tcp\n http-check send\n"
    lab.write(HOST, CONFIG, config)
    found = wrong(lab)
    assert set(found) == {"balancer", "balancer-config"}
    assert "6444" in found["balancer"].seen
    assert "http-check" in found["balancer-config"].seen


def test_a_missing_address_is_told_with_those_that_are_there(lab: Lab) -> None:
    lab.exec(HOST, ["ip", "address", "del", "192.168.126.11/24", "dev", "machine0"]).check()
    found = wrong(lab)
    assert set(found) == {"vips"}
    assert found["vips"].seen == "host has 192.168.126.2/24, 192.168.126.10/24"


def test_a_resolver_that_is_gone_knows_no_name(lab: Lab) -> None:
    lab.stop(HOST, "coredns")
    found = wrong(lab)
    assert set(found) == {"names", "reverse-names"}
    assert "api.ocp4.example.com is unknown" in found["names"].seen
