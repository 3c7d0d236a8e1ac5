"""All faults by name, in the order in which they are listed and, one after the other, tried."""

import difflib
import importlib
from typing import Final

from umbilical.lab.errors import LabError
from umbilical.lab.faults.fault import Fault

_MODULES: Final = {
    "agent-kill": "pods",
    "server-kill": "pods",
    "agent-freeze": "pods",
    "link-cut": "networks",
    "port-8091-blocked": "networks",
    "packet-loss": "networks",
    "certificate-expired": "certificates",
    "certificate-from-tomorrow": "certificates",
    "wrong-san": "certificates",
    "wrong-ca": "certificates",
    "stale-socket": "sockets",
    "slow-reader": "sockets",
    "no-default-route": "networks",
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Fault:
    """Load a fault.

    Raises:
        LabError: there is none of that name.
    """
    if name not in _MODULES:
        near = difflib.get_close_matches(name, _MODULES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_MODULES)}"
        raise LabError("UMB860", f"there is no fault {name}", hint, "umbilical lab list")
    module = importlib.import_module(f"umbilical.lab.faults.{_MODULES[name]}")
    for fault in module.FAULTS:
        if isinstance(fault, Fault) and fault.name == name:
            return fault
    raise KeyError(name)
