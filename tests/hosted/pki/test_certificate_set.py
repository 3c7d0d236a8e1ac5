"""The certificates of a hosted control plane."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.hosted_certificates import NAMES, NOW, hosted_set, renewed, terms

from umbilical.fault import PkiError
from umbilical.hosted.objects import names
from umbilical.hosted.pki import table
from umbilical.hosted.pki.certificate_set import LAYOUT_FILE, HostedSet, ListenerNames, signer_reason
from umbilical.hosted.pki.table import (
    AGENT,
    CLIENT,
    CLUSTER,
    CONTROL_PLANE_AGENT,
    LEAVES,
    SERVER,
    SINGLE_SIGNER,
    HostedLeaf,
    Signers,
    Trust,
    signer_ids,
    signer_of,
)
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, distinguished_name, read_certificates
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import BACKDATE, KeyType, Profile, Usage, client_profile, server_profile
from umbilical.pki.validation import is_signed_by, leaf_reason

DAY = timedelta(days=1)


def certificate(made: HostedSet, leaf: HostedLeaf) -> Certificate:
    return read_certificates(made.leaves[leaf.id].certificate)[0]


def current(made: HostedSet, trust: Trust) -> Certificate:
    return read_certificates(made.signer_for(trust).pair.certificate)[0]


def without(made: HostedSet, leaf: HostedLeaf, pair: KeyPair | None = None) -> HostedSet:
    """Copy a set with one pair replaced or removed."""
    others = {id_: one for id_, one in made.leaves.items() if id_ != leaf.id}
    return replace(made, leaves=others if pair is None else {**others, leaf.id: pair})


def test_every_certificate_of_the_table_is_made_with_its_subject_usage_and_names() -> None:
    for layout in list(Signers):
        made = hosted_set(layout)
        assert {leaf.id: distinguished_name(certificate(made, leaf).subject) for leaf in LEAVES} == {
            "konnectivity-server": "O=kubernetes, CN=konnectivity-server-local",
            "konnectivity-cluster": "O=kubernetes, CN=konnectivity-server",
            "konnectivity-client": "O=kubernetes, CN=konnectivity-client",
            "konnectivity-agent": "O=kubernetes, CN=konnectivity-agent",
            "konnectivity-agent-control-plane": "O=kubernetes, CN=konnectivity-agent-control-plane",
        }
        assert certificate(made, SERVER).names == NAMES.frontend
        assert certificate(made, CLUSTER).names == NAMES.agent_listener
        for leaf in LEAVES:
            assert certificate(made, leaf).usages == (leaf.usage.value,)
            assert is_signed_by(certificate(made, leaf), current(made, leaf.verified_by))


def test_certificates_begin_an_hour_back_for_clocks_that_run_apart() -> None:
    made = hosted_set()
    for leaf in LEAVES:
        assert certificate(made, leaf).not_before == NOW - BACKDATE
        assert certificate(made, leaf).not_after == NOW + timedelta(days=365)
    assert current(made, Trust.CLIENTS).not_after == NOW + timedelta(days=3650)


def test_what_is_good_is_kept_and_survives_its_files() -> None:
    renewal = renewed(hosted_set(), after=30 * DAY)
    assert renewal.changes == ()
    assert renewal.set == hosted_set()
    files = hosted_set().files()
    assert len(files) == 1 + 2 * (4 + 5)
    assert HostedSet.from_files(files) == hosted_set()
    assert "PRIVATE" not in repr(hosted_set())


def test_what_is_no_directory_of_ours_is_refused() -> None:
    for missing in ("konnectivity-server-auth-signer.key", "konnectivity-client-auth-signer.crt"):
        files = {name: content for name, content in hosted_set().files().items() if name != missing}
        with pytest.raises(PkiError, match=f"UMB553(?s:.*)lacks {missing}"):
            HostedSet.from_files(files)
    for layout in (b"", b"both", b"\xff"):
        with pytest.raises(PkiError, match="UMB553"):
            HostedSet.from_files({**hosted_set().files(), LAYOUT_FILE: layout})
    with pytest.raises(PkiError, match="UMB553"):
        HostedSet.from_files({**hosted_set().files(), "konnectivity-client-auth-signer.crt": b"nothing"})


def test_a_certificate_that_is_missing_is_made_and_new_names_renew_the_one_that_has_them() -> None:
    renewal = renewed(without(hosted_set(), AGENT))
    assert [change.id for change in renewal.changes] == [AGENT.id]
    assert renewal.set.leaves[CLIENT.id] == hosted_set().leaves[CLIENT.id]
    moved = replace(NAMES, agent_listener=("konnectivity-server", "moved.example", "2001:db8::9"))
    renewal = renewed(hosted_set(), moved)
    assert [change.id for change in renewal.changes] == [CLUSTER.id]
    assert "moved.example" in renewal.changes[0].why
    assert certificate(renewal.set, CLUSTER).names == ("konnectivity-server", "moved.example", "2001:db8::9")


def test_a_name_that_no_certificate_can_hold_is_refused_before_a_key_is_drawn() -> None:
    with pytest.raises(PkiError, match="UMB150"):
        renewed(None, ListenerNames(("a b",), ("konnectivity-server",)))


def test_a_certificate_is_renewed_when_less_than_its_share_is_left() -> None:
    long, soon = timedelta(days=365) * 0.66, timedelta(days=365) * 0.68
    assert renewed(hosted_set(), after=long).changes == ()
    renewal = renewed(hosted_set(), after=soon)
    assert {change.id for change in renewal.changes} == {leaf.id for leaf in LEAVES}
    assert all("days are left" in change.why for change in renewal.changes)


def test_a_certificate_is_signed_anew_when_its_issuer_changed_though_the_names_are_the_same() -> None:
    other = renewed(None).set
    mixed = replace(hosted_set(), signers=other.signers)
    renewal = renewed(mixed)
    assert {change.why for change in renewal.changes} == {"its signer changed"}
    assert len(renewal.changes) == len(LEAVES)
    for leaf in LEAVES:
        assert is_signed_by(certificate(renewal.set, leaf), current(other, leaf.verified_by))


def test_a_certificate_with_anothers_key_or_of_another_role_is_made_anew() -> None:
    wrong = KeyPair(hosted_set().leaves[AGENT.id].certificate, hosted_set().leaves[CLIENT.id].key)
    renewal = renewed(without(hosted_set(), AGENT, wrong))
    assert [change.id for change in renewal.changes] == [AGENT.id]
    assert "does not belong" in renewal.changes[0].why
    renewal = renewed(without(hosted_set(), CONTROL_PLANE_AGENT, hosted_set().leaves[AGENT.id]))
    assert [(change.id, change.why) for change in renewal.changes] == [(CONTROL_PLANE_AGENT.id, "its subject changed")]


def test_other_terms_renew_certificates_and_leave_signers_alone() -> None:
    for wanted, why in (
        (terms(lifetime=30 * DAY), "not 30"),
        (terms(key_type=KeyType.RSA_2048), "another key type"),
    ):
        renewal = renewed(hosted_set(), wanted=wanted)
        assert {change.id for change in renewal.changes} == {leaf.id for leaf in LEAVES}
        assert why in renewal.changes[0].why


def test_no_certificate_outlives_its_signer() -> None:
    wanted = terms(authority_lifetime=400 * DAY, renewal_share=0.1)
    made = renewed(None, wanted=wanted).set
    later = renewed(made, after=340 * DAY, wanted=wanted).set
    assert certificate(later, AGENT).not_after == current(later, Trust.AGENT_LISTENER).not_after
    # A lifetime that the signer's end shortened does not cause renewals.
    assert renewed(later, after=341 * DAY, wanted=wanted).changes == ()


def test_a_rotation_goes_in_three_steps_of_which_none_is_left_out_and_nobody_is_refused_on_the_way() -> None:
    first = renewed(hosted_set(), rotate=True)
    assert {change.id for change in first.changes} == set(signer_ids(Signers.SEPARATE))
    assert first.set.leaves == hosted_set().leaves
    with pytest.raises(PkiError, match="UMB554"):
        renewed(first.set, retire=True)
    second = renewed(first.set)
    assert {change.why for change in second.changes} == {"its signer changed"}
    third = renewed(second.set, retire=True)
    assert {(change.id, change.is_new) for change in third.changes} == {(id_, False) for id_ in second.set.signers}
    for leaf in LEAVES:
        # A peer that is one step behind or ahead is still verified.
        for shown, trusted in ((hosted_set(), first.set), (first.set, second.set), (second.set, first.set)):
            authorities = read_certificates(trusted.trusted_by(leaf.verified_by))
            assert any(is_signed_by(certificate(shown, leaf), one) for one in authorities)
        assert third.set.leaves == second.set.leaves
        assert read_certificates(third.set.trusted_by(leaf.verified_by)) == [current(second.set, leaf.verified_by)]
    assert renewed(third.set).changes == ()


def test_a_name_that_changes_during_a_rotation_is_signed_by_the_signer_that_is_known() -> None:
    moved = replace(NAMES, frontend=("localhost", "elsewhere"))
    rotated = renewed(hosted_set(), moved, rotate=True).set
    assert certificate(rotated, SERVER).names == ("localhost", "elsewhere")
    assert is_signed_by(certificate(rotated, SERVER), current(hosted_set(), Trust.CLIENTS))
    assert rotated.issuer_of(SERVER) == current(hosted_set(), Trust.CLIENTS)


def test_a_signer_near_its_end_gets_a_successor_and_an_expired_one_is_trusted_no_longer() -> None:
    later = timedelta(days=3650) * 0.7
    renewal = renewed(hosted_set(), after=later)
    assert set(signer_ids(Signers.SEPARATE)) <= {change.id for change in renewal.changes}
    assert len(read_certificates(renewal.set.trusted_by(Trust.AGENTS))) == 2
    later = timedelta(days=3651)
    made = renewed(hosted_set(), after=later).set
    assert len(read_certificates(made.trusted_by(Trust.AGENTS))) == 1
    assert is_signed_by(certificate(made, AGENT), current(made, Trust.AGENT_LISTENER))


def test_signers_are_parted_without_a_gap() -> None:
    single = hosted_set(Signers.SINGLE)
    first = renewed(single, wanted=terms(signers=Signers.SEPARATE))
    assert first.set.leaves == single.leaves
    assert all(change.why == "the layout is separate now" for change in first.changes)
    second = renewed(first.set).set
    for leaf in LEAVES:
        assert is_signed_by(certificate(second, leaf), current(second, leaf.verified_by))
    third = renewed(second, retire=True).set
    assert not is_signed_by(certificate(third, AGENT), read_certificates(third.trusted_by(Trust.FRONTEND))[0])


def test_the_table_keeps_listeners_and_sides_apart() -> None:
    assert len({signer_of(trust, Signers.SEPARATE) for trust in Trust}) == 4
    assert signer_ids(Signers.SEPARATE) == (
        "konnectivity-server-serving-signer",
        "konnectivity-cluster-serving-signer",
        "konnectivity-server-auth-signer",
        "konnectivity-client-auth-signer",
    )
    assert signer_ids(Signers.SINGLE) == (SINGLE_SIGNER,) == ("konnectivity-signer",)
    agents = {signer_of(leaf.verified_by, Signers.SEPARATE) for leaf in LEAVES if "agent" in leaf.id}
    assert len(agents) == 1
    assert signer_of(table.CLIENT.verified_by, Signers.SEPARATE) not in agents
    for leaf in LEAVES:
        dialled = leaf.verified_by in (Trust.CLIENTS, Trust.AGENTS)
        assert leaf.usage is (Usage.SERVER if dialled else Usage.CLIENT)
    assert table.CONTROL_PLANE_AGENT.common_name != table.AGENT.common_name


def test_manifests_know_secrets_and_identities_by_the_same_names() -> None:
    assert [leaf.id for leaf in LEAVES] == [
        names.SECRET_SERVER,
        names.SECRET_CLUSTER,
        names.SECRET_CLIENT,
        names.SECRET_AGENT,
        names.SECRET_CONTROL_PLANE_AGENT,
    ]
    assert table.CLIENT.common_name == names.CN_CLIENT
    assert table.AGENT.common_name == names.CN_AGENT
    assert table.CONTROL_PLANE_AGENT.common_name == names.CN_CONTROL_PLANE_AGENT


EC = KeyType.ECDSA_P256
YEAR = timedelta(days=365)
SIGNER = Authority.create("signer", NOW, 10 * YEAR, EC)
PROFILE = Profile("agent", (Usage.CLIENT,), ("kubernetes",), key_type=EC)
PAIR = SIGNER.issue(PROFILE, NOW, YEAR)


def first(pair: KeyPair) -> Certificate:
    return read_certificates(pair.certificate)[0]


def reason(
    pair: KeyPair | None = PAIR, profile: Profile = PROFILE, *, signer: Authority = SIGNER, days: int = 0
) -> str:
    return leaf_reason(pair, profile, first(signer.pair), YEAR, 0.33, NOW + timedelta(days=days))


def test_a_good_certificate_has_no_reason_and_another_signers_has_one() -> None:
    assert reason() == ""
    one, other = (server_profile("server", names, EC) for names in (("a", "10.0.0.1"), ("10.0.0.1", "a")))
    assert reason(SIGNER.issue(one, NOW, YEAR), other) == ""
    twin = Authority.create("signer", NOW, 10 * YEAR, EC)
    assert reason(signer=twin) == "its signer changed"


def test_another_wish_is_told() -> None:
    for profile, why in (
        (client_profile("another", ("kubernetes",), EC), "its subject changed"),
        (client_profile("agent", ("others",), EC), "its subject changed"),
        (Profile("agent", (Usage.SERVER,), ("kubernetes",), key_type=EC), "its usages changed"),
        (
            Profile("agent", (Usage.CLIENT,), ("kubernetes",), ("a.example",), key_type=EC),
            "its names changed: a.example",
        ),
        (client_profile("agent", ("kubernetes",)), "another key type is wanted"),
    ):
        assert reason(profile=profile) == why


def test_time_and_what_is_missing_or_cannot_be_read_are_told() -> None:
    for days, why in ((240, ""), (250, "days are left"), (366, "it expired at"), (-1, "it is not valid before")):
        found = reason(days=days)
        assert why in found
        assert bool(found) == bool(why)
    assert reason(None) == "there was none"
    assert "no readable certificate" in reason(KeyPair(b"", PAIR.key))
    assert "no readable private key" in reason(KeyPair(PAIR.certificate, b"nothing"))
    assert "does not belong" in reason(KeyPair(PAIR.certificate, SIGNER.pair.key))


def test_a_leaf_is_no_signer() -> None:
    assert signer_reason(PAIR, 0.33, NOW) == "it is not a CA certificate"
    assert signer_reason(SIGNER.pair, 0.33, NOW) == ""
    assert "days are left" in signer_reason(SIGNER.pair, 0.33, NOW + 7 * YEAR)
