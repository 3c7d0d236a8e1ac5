"""All faults by name, in the order in which they are listed and, one after the other, tried."""

from typing import Final

from umbilical.fault import LabError
from umbilical.lab import lookup
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
        raise LabError("UMB860", f"there is no fault {name}", lookup.hint(name, _MODULES), "umbilical lab list")
    fault = lookup.load(__package__, _MODULES, "FAULTS", name)
    assert isinstance(fault, Fault)
    return fault
