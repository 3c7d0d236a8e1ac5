"""Ignition's validator on every node."""

import pytest
from tests.support.hardway_judges import after, bench, current

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.judges.ignition import ignition_faults

pytestmark = pytest.mark.real("ignition-validate")


@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0)])
@pytest.mark.parametrize("profile", list(Profile))
def test_every_nodes_config_is_taken(profile: Profile, masters: int, workers: int) -> None:
    with bench(current(profile, masters, workers)) as opened:
        assert ignition_faults(opened) == []


def test_a_config_that_would_not_boot_is_a_fault() -> None:
    subject = after(Profile.KUBERNETES, lambda tree: tree.replace("ignition/worker-0.ign", '"mode":384', '"mode":-1'))
    with bench(subject) as opened:
        (fault,) = ignition_faults(opened)
    assert fault.startswith("ignition/worker-0.ign: ")


def test_a_missing_config_is_a_fault() -> None:
    with bench(after(Profile.KUBERNETES, lambda tree: tree.remove("ignition/worker-0.ign"))) as opened:
        assert ignition_faults(opened) == ["ignition/worker-0.ign is missing"]
