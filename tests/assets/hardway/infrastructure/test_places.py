"""Where the host keeps things: everything of a machine below the pool, and names that stay the same."""

import re
import uuid
from dataclasses import replace

from tests.support.hardway import cluster

from umbilical.assets.hardway.cluster import MachinesKind, Profile
from umbilical.assets.hardway.infrastructure.places import (
    OWN_PLACES,
    SERVICE_PLACES,
    balancer_command,
    balancer_places,
    base_iso,
    libvirt_of,
    machine_address,
    machine_places,
    resolver_command,
    stable_uuid,
)


def test_all_that_a_machine_reads_lies_in_the_pool() -> None:
    of = cluster()
    assert of.libvirt is not None
    assert base_iso(of.libvirt) == "/var/lib/libvirt/images/ocp4/rhcos-live.iso"
    for node in of.nodes:
        places = machine_places(of, of.libvirt, node)
        for path in (places.disk, places.iso, places.ignition):
            assert path.startswith(f"/var/lib/libvirt/images/ocp4/ocp4-{node.id}.")


def test_a_machine_keeps_its_card_and_no_two_share_one() -> None:
    of = cluster()
    addresses = [machine_address(of, node) for node in of.nodes]
    assert addresses == [machine_address(cluster(), node) for node in of.nodes]
    assert len(set(addresses)) == len(addresses)
    assert all(re.fullmatch(r"52:54:00(:[0-9a-f]{2}){3}", address) for address in addresses)
    assert machine_address(of, replace(of.nodes[0], mac="02:00:00:00:00:07")) == "02:00:00:00:00:07"


def test_identifiers_are_well_formed_and_differ_between_clusters() -> None:
    first, second = cluster(), cluster(name="other")
    assert uuid.UUID(stable_uuid(first, "master-0")).version == 8
    assert stable_uuid(first, "master-0") == stable_uuid(cluster(), "master-0")
    assert len({stable_uuid(of, what) for of in (first, second) for what in ("network", "master-0")}) == 4


def test_a_lab_has_a_load_balancer_of_its_own_and_a_virtualisation_host_a_service() -> None:
    lab, host = cluster(Profile.KUBERNETES), cluster()
    assert balancer_places(lab) == OWN_PLACES
    assert balancer_places(host) == SERVICE_PLACES
    assert libvirt_of(lab) is None
    assert libvirt_of(replace(lab, machines=MachinesKind.LIBVIRT)) == lab.libvirt


def test_commands_name_what_is_written() -> None:
    assert balancer_command("/run/x")[-1] == OWN_PLACES.config
    assert "/run/x" in balancer_command("/run/x")
    assert resolver_command() == ("coredns", "-conf", "Corefile")
