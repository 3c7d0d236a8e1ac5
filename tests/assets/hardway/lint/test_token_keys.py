"""Every key that signs tokens is known by its public half, to every kube-apiserver."""

import pytest
from tests.support.hardway_lint import Subject, changed
from tests.support.hardway_pki import pods, rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.token_keys import token_key_faults


def test_rendered_clusters_have_no_fault() -> None:
    for profile in Profile:
        assert list(token_key_faults(rendered(profile).facts())) == []


def test_one_kube_apiserver_that_lacks_a_key_is_named() -> None:
    def change(subject: Subject) -> None:
        path = next(path for path in pods(subject, "kube-apiserver") if "master-1" in path)
        subject.replace(
            path,
            "key-file=/etc/kubernetes/secrets/service-account.pub",
            "key-file=/etc/kubernetes/secrets/bound-service-account-signing-key.pub",
        )

    assert list(token_key_faults(changed(rendered(Profile.KUBERNETES), change).facts())) == [
        "late-static-pods/master-1/kube-apiserver.yaml has not the public half of tls/service-account.key"
    ]


@pytest.mark.parametrize("path", ["tls/service-account.pub", "tls/service-account.key"])
def test_what_cannot_be_read_is_told(path: str) -> None:
    broken = changed(rendered(Profile.KUBERNETES), lambda subject: subject.write(path, b"nothing"))
    with pytest.raises(Unreadable, match=path):
        list(token_key_faults(broken.facts()))
