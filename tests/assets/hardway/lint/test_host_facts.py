"""The host's files, decoded: what is not of its shape says so."""

import pytest
from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import infrastructure
from tests.support.hardway_lint import Subject, subject

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.infrastructure.places import HOST_PLAN, NETWORK, ZONE
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.host_facts import (
    balancers,
    deeds,
    domains,
    host_plan,
    is_below,
    libvirt,
    xml,
    zone_records,
)


def _subject(profile: Profile = Profile.OPENSHIFT) -> Subject:
    of = cluster(profile)
    return subject(of, infrastructure(of))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"actions": [1]}', b'{"actions": [{"id": "x", "do": "y"}]}'])
def test_a_plan_of_another_shape_is_refused(content: bytes) -> None:
    tree = _subject()
    tree.write(HOST_PLAN, content)
    with pytest.raises(Unreadable, match="host-plan"):
        host_plan(tree.facts())


def test_xml_that_is_none_is_refused() -> None:
    tree = _subject()
    tree.write(NETWORK, b"<a>")
    with pytest.raises(Unreadable, match="is not XML"):
        xml(tree.facts(), NETWORK)


def test_all_of_it_is_found_in_what_is_rendered() -> None:
    facts = _subject().facts()
    assert len(domains(facts)) == 6
    assert len(balancers(facts)) == 2
    assert "ip address replace 192.168.126.10/32 dev virbr-ocp4" in deeds(facts)
    assert ("api.ocp4.example.com", "A", "192.168.126.10") in zone_records(facts, ZONE)


def test_only_virtual_machines_have_a_host() -> None:
    assert libvirt(_subject().facts()) is None
    assert libvirt(_subject(Profile.KUBERNETES).facts())


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [("/pool/a", True), ("/pool/b/../a", True), ("/pool/../a", False), ("/poolish/a", False), ("", False)],
)
def test_what_leaves_a_folder_by_a_detour_is_not_below_it(path: str, is_inside: bool) -> None:
    assert is_below(path, "/pool/") is is_inside
