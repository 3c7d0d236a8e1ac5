"""Every scenario is found by its name, and a wrong name gets the nearest."""

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.scenarios import registry


@pytest.mark.parametrize("name", registry.names())
def test_a_listed_scenario_is_found_under_its_own_name(name: str) -> None:
    scenario = registry.find(name)
    assert scenario.name == name
    assert scenario.summary
    assert scenario.runners


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(LabError) as caught:
        registry.find("webhook-trough-tunnel")
    assert caught.value.code == "UMB852"
    assert "webhook-through-tunnel" in caught.value.why


def test_a_name_that_is_near_nothing_gets_the_list() -> None:
    with pytest.raises(LabError) as caught:
        registry.find("?")
    assert all(name in caught.value.why for name in registry.names())
