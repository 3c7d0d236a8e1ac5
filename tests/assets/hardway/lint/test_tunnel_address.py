"""The tunnel's certificate is made for the address that agents dial."""

from dataclasses import replace

from tests.support.hardway_lint import Subject, changed
from tests.support.hardway_pki import rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.tunnel_address import tunnel_address_faults
from umbilical.assets.names import BOOTKUBE


def faults(subject: Subject) -> list[str]:
    return list(tunnel_address_faults(subject.facts()))


def other_address(subject: Subject) -> None:
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda text: text.replace(b"192.168.126.100", b"10.0.0.9"))


def test_rendered_clusters_have_no_fault() -> None:
    assert [faults(rendered(profile)) for profile in Profile] == [[], []]


def test_another_address_is_told() -> None:
    found = faults(changed(rendered(Profile.OPENSHIFT), other_address))
    assert found == [
        "manifests/08-tunnel.yaml: agents dial 192.168.126.100, and the tunnel's certificate is for 10.0.0.9"
    ]


def test_a_script_that_makes_no_certificate_is_told() -> None:
    def change(subject: Subject) -> None:
        subject.edit_ignition("bootstrap", BOOTKUBE, lambda text: b"#!/bin/bash\n")

    assert "makes no certificate" in faults(changed(rendered(Profile.OPENSHIFT), change))[0]


def test_without_a_tunnel_nobody_asks() -> None:
    broken = changed(rendered(Profile.OPENSHIFT), other_address)
    assert faults(replace(broken, has_tunnel=False)) == []
