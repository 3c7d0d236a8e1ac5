"""A kubeconfig's current context, resolved; what a client could not use is told."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.support.hardway_lint import changed
from tests.support.hardway_pki import certificate, rendered

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.kubeconfig_reading import read
from umbilical.pki.certificate import read_certificates

ADMIN: Final = layout.kubeconfig("admin")


def test_server_user_and_certificate_are_found() -> None:
    found = read(rendered(Profile.OPENSHIFT).facts(), ADMIN)
    assert (found.user, found.host, found.port) == ("admin", "api.ocp4.example.com", 6443)
    wanted = certificate(rendered(Profile.OPENSHIFT), "admin-kubeconfig-client")
    assert read_certificates(found.pair.certificate)[0] == wanted
    assert len(read_certificates(found.authority)) == 3


def test_the_key_stays_out_of_what_is_printed() -> None:
    assert "PRIVATE" not in repr(read(rendered(Profile.OPENSHIFT).facts(), ADMIN))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one.pop("clusters"), "no such entry in clusters"),
        (lambda one: one.update(users="x"), "no such entry in users"),
        (lambda one: one.update({"current-context": ["admin"]}), "no such entry in contexts"),
        (lambda one: one["contexts"][0].update(context=None), "no such entry in clusters"),
        (lambda one: one["clusters"][0]["cluster"].update({"certificate-authority-data": "%"}), "is not base64"),
        (lambda one: one["clusters"][0]["cluster"].update(server="https://[::1"), "is no https URL"),
        (lambda one: one["clusters"][0]["cluster"].update(server=None), "is no https URL"),
        (lambda one: one["contexts"][0].update(name="x") or one.update({"current-context": "x"}), "not called like"),
    ],
)
def test_what_a_client_could_not_read_is_told(change: Callable[[dict[str, Any]], object], why: str) -> None:
    broken = changed(rendered(Profile.KUBERNETES), lambda subject: subject.edit(ADMIN, change))
    with pytest.raises(Unreadable, match=why):
        read(broken.facts(), ADMIN)
