"""Who makes cluster IPs work: what the rules about it rest on."""

import pytest
from tests.support.hardway_lint import copied
from tests.support.hardway_pki import rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.service_proxies import removal, right_faults

REMOVALS = "static-pods/removals.json"


def test_a_removal_is_found_by_its_name() -> None:
    facts = rendered(Profile.OPENSHIFT).facts()
    found = removal(facts, "kube-proxy")
    assert found is not None
    assert found.stage == 16
    assert removal(facts, "nothing") is None


def test_a_removal_that_cannot_be_read_is_no_crash() -> None:
    subject = copied(rendered(Profile.OPENSHIFT))
    subject.write(REMOVALS, b"\xff{")
    with pytest.raises(Unreadable, match=REMOVALS):
        removal(subject.facts(), "kube-proxy")


def test_a_group_may_have_the_right_for_its_users() -> None:
    subject = copied(rendered(Profile.OPENSHIFT))

    def to_group(documents: list[dict[str, object]]) -> None:
        [binding] = [one for one in documents if "kube-proxy" in str(one["metadata"])]
        binding["subjects"] = [{"kind": "Group", "name": "system:serviceaccounts"}]

    subject.edit("manifests/03-rbac.yaml", to_group)
    assert list(right_faults(subject.facts())) == []
