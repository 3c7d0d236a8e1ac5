"""Certificates as objects of both clusters."""

import base64
import hashlib
from typing import Any

import pytest
from tests.support.hosted_certificates import hosted_set, renewed
from tests.support.hosted_specs import hosted_spec

from umbilical.hosted.objects.control_plane_files import (
    fingerprint,
    hosted_certificates,
    leaf_secret,
    management_certificates,
)
from umbilical.hosted.objects.spec import HostedSpec, Pki
from umbilical.hosted.pki.table import AGENT, CLIENT, LEAVES, HostedLeaf, Signers, Trust
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import certificate_blocks, holds_key

MANAGEMENT = management_certificates(hosted_spec(), hosted_set())
HOSTED = hosted_certificates(hosted_spec(), hosted_set())


def names(objects: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in objects]


def data(one: dict[str, Any]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in one["data"].items()}


def test_each_cluster_gets_what_its_pods_show_and_the_hosted_one_no_other_key() -> None:
    assert names(MANAGEMENT) == [
        ("ConfigMap", "clusters-guest", "konnectivity-ca-bundle"),
        ("Secret", "clusters-guest", "konnectivity-server"),
        ("Secret", "clusters-guest", "konnectivity-cluster"),
        ("Secret", "clusters-guest", "konnectivity-client"),
        ("Secret", "clusters-guest", "konnectivity-agent-control-plane"),
    ]
    assert names(HOSTED) == [
        ("ConfigMap", "kube-system", "konnectivity-ca-bundle"),
        ("Secret", "kube-system", "konnectivity-agent"),
    ]
    assert HOSTED[0]["data"] == {"ca.crt": hosted_set().trusted_by(Trust.AGENTS).decode()}


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.id)
def test_a_secret_holds_the_tables_keys_and_names_its_authority_by_sha_256(leaf: HostedLeaf) -> None:
    found = leaf_secret(hosted_spec(), hosted_set(), leaf, "clusters-guest")
    assert list(found["data"]) == ["tls.crt", "tls.key", "ca.crt"]
    authority = certificate_blocks(data(found)["ca.crt"])[0]
    assert found["metadata"]["annotations"] == {"umbilical.dev/ca-sha256": hashlib.sha256(authority).hexdigest()}
    assert holds_key(data(found)["tls.key"])
    assert not holds_key(data(found)["tls.crt"] + data(found)["ca.crt"])


def test_annotations_name_who_signed_and_bundles_hold_old_and_new_during_a_rotation() -> None:
    rotated = renewed(hosted_set(), rotate=True).set
    before, after = (leaf_secret(hosted_spec(), one, CLIENT, "x") for one in (hosted_set(), rotated))
    assert before["metadata"]["annotations"] == after["metadata"]["annotations"]
    rotated = renewed(hosted_set(), rotate=True).set
    for bundle in management_certificates(hosted_spec(), rotated)[0]["data"].values():
        assert len(read_certificates(bundle.encode())) == 2


def test_each_side_of_each_listener_has_a_bundle_of_its_own() -> None:
    bundles = MANAGEMENT[0]["data"]
    assert list(bundles) == ["ca.crt", "cluster-ca.crt", "server-client-ca.crt", "cluster-client-ca.crt"]
    assert len(set(bundles.values())) == 4


def test_signers_keys_stay_outside_unless_asked_for() -> None:
    keys = {hashlib.sha256(state.pair.key).digest() for state in hosted_set().signers.values()}
    for one in (*MANAGEMENT[1:], *HOSTED[1:]):
        assert not keys & {hashlib.sha256(value).digest() for value in data(one).values()}


@pytest.mark.parametrize("layout", list(Signers))
def test_signers_become_secrets_with_both_pairs_of_keys_where_asked_for(layout: Signers) -> None:
    spec: HostedSpec = hosted_spec(pki=Pki(signers=layout, signers_in_cluster=True))
    found = [one for one in management_certificates(spec, hosted_set(layout)) if "signer" in one["metadata"]["name"]]
    assert len(found) == (4 if layout is Signers.SEPARATE else 1)
    for one in found:
        assert list(one["data"]) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
        assert one["data"]["ca.key"] == one["data"]["tls.key"]


def test_no_agent_beside_the_control_plane_needs_no_secret() -> None:
    spec = hosted_spec(aggregated_apis=())
    found = management_certificates(spec, hosted_set())
    assert "konnectivity-agent-control-plane" not in {name for *_, name in names(found)}


def test_what_an_agent_begins_with_changes_with_its_certificate_and_with_whom_it_trusts() -> None:
    renewed_set, rotated = renewed(None).set, renewed(hosted_set(), rotate=True).set
    assert len({fingerprint(one, AGENT) for one in (hosted_set(), renewed_set, rotated)}) == 3
