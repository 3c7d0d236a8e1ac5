"""All scenarios by name, in the order in which they are listed. Each module is loaded when it is asked for."""

from typing import Final

from umbilical.fault import LabError
from umbilical.lab import lookup
from umbilical.lab.scenarios.scenario import Scenario

_MODULES: Final = {
    "webhook-through-tunnel": "webhook_through_tunnel",
    "aggregated-api": "aggregated_api",
    "conversion-webhook": "conversion_webhook",
    "kubelet-traffic": "kubelet_traffic",
    "seed-shape": "webhook_through_tunnel",
    "upstream-mix": "webhook_through_tunnel",
    "ipv6": "webhook_through_tunnel",
    "patched-ignition": "patched_ignition",
    "ha": "ha",
    "hosted": "hosted",
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Scenario:
    """Load a scenario.

    Raises:
        LabError: there is none of that name.
    """
    if name not in _MODULES:
        raise LabError("UMB852", f"there is no scenario {name}", lookup.hint(name, _MODULES), "umbilical lab list")
    scenario = lookup.load(__package__, _MODULES, "SCENARIOS", name)
    assert isinstance(scenario, Scenario)
    return scenario
