"""Names of Services, and of nothing else: a foreign name whose first two labels look like one stays foreign."""

import re
from typing import Final

from umbilical.record import Record

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123, which both namespaces and Services keep to."""
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""No top-level domain looks so: resolvers take a name that ends in it for an address, in one of its older spellings."""
SERVICE_LABEL: Final = "svc"


class ServiceName(Record):
    namespace: str
    name: str


def parse_service_name(host: str, cluster_domain: str) -> ServiceName | None:
    """Read NAME.NAMESPACE, NAME.NAMESPACE.svc or NAME.NAMESPACE.svc.DOMAIN; None for any other name.

    Two labels that end with a dot are absolute, and so no Service.
    """
    name = plain(host)
    if name.endswith(_ending(cluster_domain)):
        name = name.removesuffix("." + plain(cluster_domain))
    labels = name.split(".")
    is_short = len(labels) == 2 and not host.endswith(".")
    if not (is_short or (len(labels) == 3 and labels[2] == SERVICE_LABEL)):
        return None
    if not all(map(_LABEL.fullmatch, labels)) or _is_address(labels):
        return None
    return ServiceName(labels[1], labels[0])


def is_of_the_cluster(host: str, cluster_domain: str) -> bool:
    """Whether the name can mean something inside the cluster alone; this machine's cluster may have it too."""
    return plain(host).endswith((f".{SERVICE_LABEL}", "." + plain(cluster_domain)))


def is_of_the_world(host: str, cluster_domain: str) -> bool:
    """Whether the name means the same to everybody: neither the cluster's own, nor a short one, which some machine's
    search list completes, nor that machine itself, nor an address in disguise.
    """
    labels = plain(host).split(".")
    if len(labels) < 2 or not all(labels) or ":" in host or is_of_the_cluster(host, cluster_domain):
        return False
    return labels[-1] != "localhost" and not _NUMBER.fullmatch(labels[-1])


def absolute_names(host: str, cluster_domain: str) -> tuple[str, ...]:
    """What the cluster's DNS is asked, in turn: short names of Services first, as pods there find them."""
    name = plain(host)
    domain = plain(cluster_domain)
    if name.endswith(f".{SERVICE_LABEL}"):
        return (f"{name}.{domain}",)
    if name.count(".") == 1 and parse_service_name(host, cluster_domain) is not None:
        return (f"{name}.{SERVICE_LABEL}.{domain}", name)
    return (name,)


def plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _ending(cluster_domain: str) -> str:
    return f".{SERVICE_LABEL}.{plain(cluster_domain)}"


def _is_address(labels: list[str]) -> bool:
    """127.1 is an address to every resolver."""
    return all(label.isdigit() for label in labels)
