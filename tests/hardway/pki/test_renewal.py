"""Which certificates of the hard way are made anew, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.hardway_names import member, names
from tests.support.hardway_pki import Forgery
from tests.support.tunnel_directories import run_openssl

from umbilical.fault import PkiError
from umbilical.hardway.config.cluster import CertificateTerms
from umbilical.hardway.pki.certificate_set import HardwaySet
from umbilical.hardway.pki.renewal import CertificateRenewal, renew
from umbilical.hardway.pki.row import HardwayNames, Life, Scope
from umbilical.hardway.pki.table import rows
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, read_certificates, read_public_key
from umbilical.pki.control_plane_set import PkiKind
from umbilical.pki.openssl import Openssl
from umbilical.pki.pem import KeyPair, public_key_block
from umbilical.pki.profiles import BACKDATE, CertificateSigner, KeyType
from umbilical.pki.validation import is_signed_by

NOW: Final = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
TERMS: Final = CertificateTerms(KeyType.ECDSA_P256)


def pairs(made: HardwaySet) -> dict[str, KeyPair]:
    return {row_id: made[row_id] for row_id in made}


@cache
def first_set(scope: Scope = Scope.OPENSHIFT) -> HardwaySet:
    return renew(names(scope), {}, TERMS, NOW).set


def again(
    wanted: HardwayNames | None = None,
    terms: CertificateTerms = TERMS,
    after: timedelta = timedelta(),
    rotate: tuple[str, ...] = (),
    **replaced: KeyPair | None,
) -> CertificateRenewal:
    """Renew the first set; None removes a pair, `_` in a name means `-`."""
    existing: dict[str, Any] = pairs(first_set()) | {key.replace("_", "-"): one for key, one in replaced.items()}
    existing = {key: one for key, one in existing.items() if one is not None}
    return renew(wanted or names(), existing, terms, NOW + after, rotate=rotate)


def certificate(made: HardwaySet, row_id: str) -> Certificate:
    return read_certificates(made[row_id].certificate)[0]


def changed(renewal: CertificateRenewal) -> dict[str, str]:
    return {change.id: change.why for change in renewal.changes}


def test_every_row_is_made_as_the_table_says() -> None:
    for scope in (Scope.OPENSHIFT, Scope.KUBERNETES):
        made = first_set(scope)
        wanted = list(rows(scope, ("bootstrap", "master-0")))
        assert list(made) == [row.id for row in wanted]
        for row in wanted:
            if row.kind is PkiKind.KEY:
                continue
            found = certificate(made, row.id)
            subject = {("CN", row.common_name), *(("O", group) for group in row.organizations)}
            assert set(found.subject) == subject
            assert found.is_authority == (row.kind is PkiKind.AUTHORITY)
            assert set(found.usages) == {usage.value for usage in row.usages}
            assert found.not_before == NOW - BACKDATE
            assert is_signed_by(found, certificate(made, row.signer or row.id))
            assert {"basicConstraints", "keyUsage"} == found.critical
            assert found.key_identifier
            assert found.path_length is None


def test_lives_are_the_tables_and_nothing_outlives_its_signer() -> None:
    made = first_set()
    lives = {"root-ca": 3650, "etcd-signer": 1825, "etcd-peer-master-0": 1095, "kube-control-plane-signer": 365}
    for row_id, days in lives.items():
        assert certificate(made, row_id).not_after == NOW + timedelta(days=days)
    for row in rows(Scope.OPENSHIFT, ("bootstrap", "master-0")):
        if row.life is Life.SHORT:
            assert certificate(made, row.id).not_after == NOW + timedelta(hours=48)
        if row.signer:
            assert certificate(made, row.id).not_after <= certificate(made, row.signer).not_after


def test_token_keys_are_rsa_whatever_is_asked_for() -> None:
    made = first_set()
    for row_id in ("service-account", "bound-service-account-signing-key"):
        assert read_public_key(public_key_block(made[row_id].certificate)).title == "RSA 2048"
    assert made["service-account"].key != made["bound-service-account-signing-key"].key


def test_what_is_right_stays_byte_for_byte() -> None:
    kept = again(after=HOUR)
    assert kept.changes == ()
    assert pairs(kept.set) == pairs(first_set())
    assert renew(names(), pairs(first_set()), TERMS, NOW, IdleBackend()).changes == ()


class IdleBackend:
    """Draws nothing and takes nothing up: both take their time, and a set that is right needs neither."""

    def create(self, *what: Any, **how: Any) -> CertificateSigner:
        raise AssertionError(f"{what[0]} is made anew")

    def load(self, pair: KeyPair) -> CertificateSigner:
        raise AssertionError("a signer is taken up that has nothing to sign")


def test_only_what_is_missing_or_has_another_name_is_made_anew() -> None:
    found = again(etcd_client=None)
    assert changed(found) == {"etcd-client": "there was none"}
    assert pairs(found.set) | {"etcd-client": first_set()["etcd-client"]} == pairs(first_set())
    found = again(names(api_name="api.other.example"))
    assert changed(found) == {"kube-apiserver-lb-server": "its names changed: api.ocp4.example.com, api.other.example"}


def test_another_master_changes_the_addresses_and_adds_its_own() -> None:
    more = (*names().masters, member("master-1", "192.168.126.102"))
    assert set(changed(again(names(masters=more)))) == {
        "kube-apiserver-service-network-server",
        *(f"etcd-{kind}-master-1" for kind in ("peer", "serving", "serving-metrics")),
    }


def test_a_signer_that_is_rotated_signs_anew_all_that_it_had_signed() -> None:
    found = again(rotate=("etcd-signer",))
    resigned = [f"etcd-{kind}-{node}" for kind in ("peer", "serving") for node in ("bootstrap", "master-0")]
    assert changed(found) == {
        "etcd-signer": "rotation was requested",
        **dict.fromkeys(["etcd-client", *resigned], "its signer changed"),
    }
    assert certificate(found.set, "etcd-client").key != certificate(first_set(), "etcd-client").key


def test_a_leaf_that_is_rotated_keeps_its_signer() -> None:
    found = again(rotate=("etcd-client", "service-account"))
    assert set(changed(found)) == {"etcd-client", "service-account"}
    assert is_signed_by(certificate(found.set, "etcd-client"), certificate(first_set(), "etcd-signer"))


def test_what_nobody_knows_and_lives_that_are_too_short_are_refused() -> None:
    with pytest.raises(PkiError, match="UMB710"):
        again(rotate=("etcd-signr",))
    with pytest.raises(PkiError, match="UMB711"):
        renew(names(), {}, replace(TERMS, short_hours=4), NOW)


def test_what_ends_before_an_installation_may_is_made_anew() -> None:
    found = changed(again(after=44 * HOUR))
    assert found["kubelet-signer"] == "only 4 h were left, an installation may take 4 h"
    assert "etcd-client" not in found
    assert changed(again(after=43 * HOUR)) == {}
    assert "it expired at" in changed(again(after=48 * HOUR))["kubelet-signer"]
    assert "it is not valid before" in changed(again(after=-2 * HOUR))["root-ca"]


def test_age_alone_is_no_reason_where_a_cluster_may_be_running() -> None:
    existing = pairs(first_set())
    later = NOW + timedelta(days=4000)
    assert renew(names(), existing, TERMS, later, renew_due=False).changes == ()
    other = names(api_name="api.other.example")
    changes = renew(other, existing, TERMS, NOW + 47 * HOUR, renew_due=False).changes
    assert [one.id for one in changes] == ["kube-apiserver-lb-server"]
    rotated = renew(names(), existing, TERMS, NOW + timedelta(days=4), rotate=("aggregator-signer",), renew_due=False)
    assert {one.id for one in rotated.changes} == {"aggregator-signer", "aggregator-client"}


def test_nothing_is_signed_by_a_signer_that_has_ended() -> None:
    with pytest.raises(PkiError) as failure:
        renew(names(api_name="x.example"), pairs(first_set()), TERMS, NOW + timedelta(days=4000), renew_due=False)
    assert failure.value.code == "UMB712"
    assert "umbilical stage rotate kube-apiserver-lb-signer" in failure.value.remedy


def test_a_leaf_that_is_made_late_ends_with_its_signer() -> None:
    found = again(after=10 * HOUR, aggregator_client=None)
    assert (
        certificate(found.set, "aggregator-client").not_after == certificate(first_set(), "aggregator-signer").not_after
    )


def test_another_kind_of_key_makes_everything_anew_but_token_keys() -> None:
    found = changed(again(terms=replace(TERMS, key_type=KeyType.RSA_2048)))
    assert set(pairs(first_set())) - set(found) == {"service-account", "bound-service-account-signing-key"}
    assert set(found.values()) == {"another key type is wanted"}


def test_what_was_spoilt_is_made_anew() -> None:
    made = first_set()
    crossed = replace(made["service-account"], key=made["bound-service-account-signing-key"].key)
    spoilt: list[tuple[str, Any, str]] = [
        ("etcd_client", KeyPair(made["etcd-client"].certificate, made["kubelet-client"].key), "belong"),
        ("etcd_client", KeyPair(b"nothing", made["etcd-client"].key), "no readable certificate"),
        ("etcd_client", made["kubelet-client"], "its subject changed"),
        ("etcd_signer", made["etcd-client"], "it may not sign"),
        ("etcd_signer", made["etcd-metric-signer"], "its subject changed"),
        ("service_account", made["etcd-client"], "no readable public key"),
        ("service_account", crossed, "the public key does not belong to the private key"),
    ]
    for row_id, pair, why in spoilt:
        assert why in changed(again(**{row_id: pair}))[row_id.replace("_", "-")]


def test_a_signer_below_another_is_not_kept() -> None:
    root = Authority.create("root", NOW, timedelta(days=10), KeyType.ECDSA_P256)
    below = Forgery("etcd-signer", is_authority=True).signed_by(root.pair, NOW)
    assert "does not trust an intermediate alone" in changed(again(etcd_signer=below))["etcd-signer"]


@pytest.mark.real("openssl")
def test_the_hosts_openssl_makes_the_same_set(tmp_path: Path) -> None:
    made = renew(names(Scope.KUBERNETES), {}, TERMS, NOW, Openssl(run_openssl, tmp_path)).set
    library = first_set(Scope.KUBERNETES)
    assert list(made) == list(library)
    for row in rows(Scope.KUBERNETES, ("bootstrap", "master-0")):
        if row.kind is not PkiKind.KEY:
            assert said(certificate(made, row.id)) == said(certificate(library, row.id))
    assert renew(names(Scope.KUBERNETES), pairs(made), TERMS, NOW).changes == ()


def said(found: Certificate) -> tuple[object, ...]:
    """All but what is drawn."""
    names = (found.subject, found.issuer, set(found.names), found.usages, found.key_usages)
    return (*names, found.critical, found.path_length, found.not_before, found.not_after, found.key.title)
