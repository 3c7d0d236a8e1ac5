"""Whether NetworkPolicies allow TCP from anywhere to a port of a pod."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import Json

_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")


def selecting(policies: Sequence[Json], labels: Mapping[str, str]) -> list[Json]:
    """Return the ingress policies that select a pod with these labels."""
    return [policy for policy in policies if _closes_ingress(policy) and selects(_selector(policy), labels)]


def opens(policy: Json, port: int, port_names: Mapping[str, int]) -> bool:
    """Return whether a rule allows this TCP port from everywhere."""
    rules = objects.items(objects.field(policy, "spec", "ingress"))
    return any(_from_anywhere(rule) and _has_port(rule, port, port_names) for rule in rules)


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Match a label selector: all conditions must hold; an empty one selects everything."""
    if not isinstance(selector, dict):
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(condition, labels) for condition in objects.items(selector.get("matchExpressions")))


def _selector(policy: Json) -> Any:
    found = objects.field(policy, "spec", "podSelector")
    return {} if found is None else found


def _closes_ingress(policy: Json) -> bool:
    # Without policyTypes the API stores Ingress, and Egress only if there are egress rules.
    return "Ingress" in (objects.field(policy, "spec", "policyTypes") or ["Ingress"])


def _holds(condition: Json, labels: Mapping[str, str]) -> bool:
    key, values = str(condition.get("key")), condition.get("values") or []
    match condition.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _from_anywhere(rule: Json) -> bool:
    sources = objects.items(rule.get("from"))
    return not sources or any(_is_everywhere(source) for source in sources)


def _is_everywhere(source: Json) -> bool:
    block = source.get("ipBlock")
    return isinstance(block, dict) and block.get("cidr") in _EVERYWHERE and not block.get("except")


def _has_port(rule: Json, port: int, port_names: Mapping[str, int]) -> bool:
    ports = objects.items(rule.get("ports"))
    return not ports or any(_is_port(entry, port, port_names) for entry in ports)


def _is_port(entry: Json, port: int, port_names: Mapping[str, int]) -> bool:
    if entry.get("protocol", "TCP") != "TCP":
        return False
    given, last = entry.get("port"), entry.get("endPort")
    if given is None:
        return True
    if isinstance(given, str):
        return port_names.get(given) == port
    return bool(given <= port <= (last if isinstance(last, int) else given))
