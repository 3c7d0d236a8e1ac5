"""HAProxy on its configurations: warnings are faults, and the host's own copies are not looked at."""

import pytest
from tests.support.hardway_judges import after, bench, current
from tests.support.hardway_lint import Subject

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.infrastructure.places import HAPROXY_FINAL
from umbilical.hardway.judges.balancer import balancer_faults

pytestmark = pytest.mark.real("haproxy")


def _faults(subject: Subject) -> list[str]:
    with bench(subject) as opened:
        return balancer_faults(opened)


@pytest.mark.parametrize("profile", list(Profile))
def test_both_files_are_taken(profile: Profile) -> None:
    assert _faults(current(profile)) == []


def test_a_warning_is_a_fault() -> None:
    faults = _faults(after(Profile.OPENSHIFT, lambda tree: tree.replace(HAPROXY_FINAL, "option httpchk", "# ")))
    assert any("http-check" in fault for fault in faults)


def test_a_word_that_haproxy_does_not_know_is_a_fault() -> None:
    faults = _faults(after(Profile.KUBERNETES, lambda tree: tree.replace(HAPROXY_FINAL, "balance", "balanced")))
    assert any("unknown keyword" in fault for fault in faults)
