"""Objects that certificates travel in."""

import base64
from datetime import UTC, datetime

from tests.support import hardway

from umbilical.assets.hardway.manifests.objects import (
    ISSUER,
    NOT_AFTER,
    NOT_BEFORE,
    access,
    bundle,
    certificate_secret,
    cluster_role,
    cluster_role_binding,
    head,
    plain_secret,
    service_account,
    timestamp,
    user,
)
from umbilical.pki.certificate import read_certificates

SIGNER = hardway.hardway_set()["etcd-signer"]


def test_a_signers_secret_tells_its_dates_as_the_certificate_has_them() -> None:
    found = certificate_secret("ns", "name", SIGNER)
    certificate = read_certificates(SIGNER.certificate)[0]
    annotations = found["metadata"]["annotations"]
    assert datetime.strptime(annotations[NOT_BEFORE], "%Y-%m-%dT%H:%M:%S%z") == certificate.not_before
    assert datetime.strptime(annotations[NOT_AFTER], "%Y-%m-%dT%H:%M:%S%z") == certificate.not_after
    assert annotations[ISSUER] == certificate.issuer_name
    assert found["type"] == "kubernetes.io/tls"
    assert found["metadata"]["labels"] == {"auth.openshift.io/managed-certificate-type": "signer"}
    assert base64.b64decode(found["data"]["tls.key"]) == SIGNER.key


def test_moments_are_written_as_go_writes_them() -> None:
    assert timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


def test_a_bundle_is_text_under_the_key_that_operators_read() -> None:
    assert bundle("ns", "name", b"pem")["data"] == {"ca-bundle.crt": "pem"}
    assert bundle("ns", "name", b"pem", "ca.crt")["data"] == {"ca.crt": "pem"}


def test_a_head_has_only_what_it_was_given() -> None:
    assert head("a") == {"name": "a"}
    assert head("a", "b", labels={}, annotations={"c": "d"}) == {
        "name": "a",
        "namespace": "b",
        "annotations": {"c": "d"},
    }


def test_roles_and_bindings_refer_to_each_other_by_name() -> None:
    role = cluster_role("r", access("", ["nodes/proxy"], ("get",)))
    binding = cluster_role_binding("b", "r", user("u"), service_account("n", "s"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == "r"
    assert [one["kind"] for one in binding["subjects"]] == ["User", "ServiceAccount"]


def test_a_plain_secret_is_opaque() -> None:
    assert plain_secret("n", "s", {"k": b"v"})["type"] == "Opaque"
