"""The files about the host of the machines, decoded: its plan, libvirt's XML, zones."""

import json
import posixpath
from typing import Any
from xml.etree import ElementTree

from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.config.cluster import MachinesKind
from umbilical.hardway.lint.balancer_text import Balancer, read_balancer
from umbilical.hardway.lint.facts import Facts, Unreadable

BALANCERS = (places.HAPROXY_BOOTSTRAP, places.HAPROXY_FINAL)


def libvirt(facts: Facts) -> str | None:
    """Say why a rule about virtual machines does not apply."""
    return None if facts.cluster.machines is MachinesKind.LIBVIRT else "there are no virtual machines (machines: lab)"


def balancers(facts: Facts) -> dict[str, Balancer]:
    return {path: read_balancer(facts.text(path)) for path in BALANCERS}


def host_plan(facts: Facts) -> dict[str, Any]:
    """Read the plan.

    Raises:
        Unreadable: it is missing or not of its shape.
    """
    try:
        plan = json.loads(facts.content(places.HOST_PLAN))
    except ValueError as error:
        raise Unreadable(f"{places.HOST_PLAN} is not JSON: {error}") from None
    actions = plan.get("actions") if isinstance(plan, dict) else None
    if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
        raise Unreadable(f"{places.HOST_PLAN} has no list of actions that can be checked, done and undone")
    return dict(plan)


def deeds(facts: Facts) -> list[str]:
    """List the lines that the plan does, in order."""
    return [str(action["do"]) for action in host_plan(facts)["actions"]]


def xml(facts: Facts, path: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(facts.content(path))
    except ElementTree.ParseError as error:
        raise Unreadable(f"{path} is not XML: {error}") from None


def domains(facts: Facts) -> dict[str, ElementTree.Element]:
    """Read the machine of every node."""
    paths = [places.domain_file(node) for node in facts.cluster.nodes]
    return {path: xml(facts, path) for path in paths}


def is_below(path: str, folder: str) -> bool:
    whole = posixpath.normpath(path)
    return whole.startswith(posixpath.normpath(folder).rstrip("/") + "/")


def zone_records(facts: Facts, path: str) -> list[tuple[str, str, str]]:
    """Read a zone file as (name, kind, value), names without the last dot."""
    found = []
    for line in facts.text(path).splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "IN":
            found.append((words[0].rstrip("."), words[2], " ".join(words[3:]).rstrip(".")))
    return found


def _is_action(action: object) -> bool:
    return isinstance(action, dict) and all(isinstance(action.get(key), str) for key in ("id", "check", "do", "undo"))
