"""All scenarios by name, in the order in which they are listed. Each module is loaded when it is asked for."""

import difflib
import importlib
from typing import Final

from umbilical.lab.errors import LabError
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
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Scenario:
    """Load a scenario.

    Raises:
        LabError: there is none of that name.
    """
    if name not in _MODULES:
        near = difflib.get_close_matches(name, _MODULES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_MODULES)}"
        raise LabError("UMB852", f"there is no scenario {name}", hint, "umbilical lab list")
    module = importlib.import_module(f"umbilical.lab.scenarios.{_MODULES[name]}")
    for scenario in module.SCENARIOS:
        if isinstance(scenario, Scenario) and scenario.name == name:
            return scenario
    raise KeyError(name)
