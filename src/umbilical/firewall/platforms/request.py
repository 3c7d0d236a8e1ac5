"""What a user asks a firewall rule for: cluster, port, sources and release, each checked before it reaches a script."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import AGENT_PORT, PORT_RANGE, RESERVED_PORTS, IpNetwork

DEFAULT_PORT: Final = AGENT_PORT
# Letters, digits and hyphens only: the id becomes part of shell lines, Terraform, YAML and names of cloud resources.
# The installer's own are at most 27 long; the longest name made of one here must stay below the clouds' 63.
INFRA_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
RELEASE: Final = re.compile(r"(\d{1,2})\.(\d{1,3})(\.[0-9A-Za-z.+-]{1,60})?")
OLDEST_KNOWN: Final = (4, 12)


@dataclass(frozen=True, order=True)
class ReleaseLine:
    """A release line, as `4.18`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


NATIVE_SINCE: Final = ReleaseLine(4, 23)
"""From here on installers make the rule themselves where they make any."""


@dataclass(frozen=True)
class RuleRequest:
    infra_id: str = ""
    """Empty where the platform names nothing after the cluster."""
    port: int = DEFAULT_PORT
    networks: tuple[IpNetwork, ...] = ()
    """Where nodes come from: the machine networks, or what the user narrowed them to."""
    release: ReleaseLine | None = None

    def __post_init__(self) -> None:
        if self.infra_id and not INFRA_ID.fullmatch(self.infra_id):
            raise unusable("infra id", self.infra_id, "it holds a-z, 0-9 and hyphens, as in metadata.json")
        if self.port not in PORT_RANGE or self.port in RESERVED_PORTS:
            raise unusable("port", self.port, "it lies outside 1024..49151, or a bootstrap node needs it itself")

    def is_before(self, major: int, minor: int) -> bool:
        """Whether the release is known and older; one that is not named counts as of this day."""
        return self.release is not None and self.release < ReleaseLine(major, minor)

    def cluster(self, suffix: str = "") -> str:
        """Name something of this cluster's. Raises RenderError: the infra id was not given."""
        if not self.infra_id:
            why = "this platform's groups, tags and rules are named after the cluster"
            raise RenderError("UMB160", "the infra id is not known", why, "add --infra-id ID; metadata.json has it")
        return f"{self.infra_id}{suffix}"

    def named_networks(self, platform: str) -> tuple[IpNetwork, ...]:
        """Return the sources where the platform has no narrower word for the cluster's nodes.

        Raises RenderError: none is known, and opening the port to everybody is not a default.
        """
        if not self.networks:
            raise RenderError(
                "UMB162",
                f"{platform}: from where may agents come?",
                "no machine network is known, and the port is not opened to everybody",
                "add --machine-network CIDR as in install-config.yaml, or --source with the nodes' addresses",
            )
        return self.networks


def parse_release(text: str) -> ReleaseLine:
    """Read `4.18`, or a whole version such as `4.18.3`. Raises RenderError: it is none."""
    found = RELEASE.fullmatch(text)
    if not found or (int(found[1]), int(found[2])) < OLDEST_KNOWN:
        raise unusable("release", text, "it is no version from 4.12 on, such as 4.18 or 4.18.3")
    return ReleaseLine(int(found[1]), int(found[2]))


def parse_network(text: str) -> IpNetwork:
    """Read a CIDR or an address. Raises RenderError: it is none, or has bits beside its prefix."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise unusable("source", text, str(error)) from None


def unusable(field: str, value: object, why: str, remedy: str = "umbilical firewall render --help") -> RenderError:
    return RenderError("UMB160", f"{field} {value!r} cannot be used", why, remedy)
