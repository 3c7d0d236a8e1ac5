"""Certificates that are kept whatever their age."""

from datetime import timedelta
from functools import cache

import pytest
from tests.support import hardway

from umbilical.assets.hardway.certificates import names
from umbilical.assets.hardway.cluster import Profile
from umbilical.pki.errors import PkiError
from umbilical.pki.hardway_renewal import Renewal, renew
from umbilical.pki.pem import KeyPair

CLUSTER = hardway.cluster(Profile.OPENSHIFT, 1, 0)
LATER = hardway.NOW + timedelta(days=4)


@cache
def pairs() -> dict[str, KeyPair]:
    made = renew(names(CLUSTER), {}, CLUSTER.terms, hardway.NOW).set
    return {one: made[one] for one in made}


def renewed(existing: dict[str, KeyPair], *rotate: str, renew_due: bool = False) -> Renewal:
    return renew(names(CLUSTER), existing, CLUSTER.terms, LATER, rotate=rotate, renew_due=renew_due)


def test_age_is_a_reason_only_where_it_is_asked_for() -> None:
    assert renewed(pairs()).changes == ()
    assert {change.id for change in renewed(pairs(), renew_due=True).changes} >= {"kubelet-signer", "aggregator-client"}


def test_rotation_still_works_on_what_ended() -> None:
    made = renewed(pairs(), "aggregator-signer")
    assert {change.id for change in made.changes} == {"aggregator-signer", "aggregator-client"}


def test_nothing_is_made_by_a_signer_that_ended() -> None:
    lost = {one: pair for one, pair in pairs().items() if one != "aggregator-client"}
    with pytest.raises(PkiError) as refused:
        renewed(lost)
    assert refused.value.code == "UMB712"
    assert refused.value.remedy == "umbilical stage rotate aggregator-signer"
