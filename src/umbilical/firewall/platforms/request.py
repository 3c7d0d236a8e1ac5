"""The user's input for a firewall rule: cluster, port, sources and release, validated before use in a script."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import AGENT_PORT, PORT_RANGE, RESERVED_PORTS, IpNetwork

DEFAULT_PORT: Final = AGENT_PORT
# Only letters, digits and hyphens: the id becomes part of shell lines, Terraform, YAML and names of cloud resources.
# The installer's ids have at most 27 characters; the longest name built here must fit the clouds' limit of 63.
INFRA_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
RELEASE: Final = re.compile(r"(\d{1,2})\.(\d{1,3})(\.[0-9A-Za-z.+-]{1,60})?")
OLDEST_KNOWN: Final = (4, 12)


@dataclass(frozen=True, order=True)
class ReleaseLine:
    """Major and minor version, such as `4.18`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


NATIVE_SINCE: Final = ReleaseLine(4, 23)
"""From this release on installers create the rule themselves, if they create any."""


@dataclass(frozen=True)
class RuleRequest:
    infra_id: str = ""
    """May be empty if the platform's names do not contain it."""
    port: int = DEFAULT_PORT
    networks: tuple[IpNetwork, ...] = ()
    """Networks of the nodes, or the narrower sources that the user gave."""
    release: ReleaseLine | None = None

    def __post_init__(self) -> None:
        if self.infra_id and not INFRA_ID.fullmatch(self.infra_id):
            raise unusable("infra id", self.infra_id, "it is not of a-z, 0-9 and hyphens, as in metadata.json")
        if self.port not in PORT_RANGE or self.port in RESERVED_PORTS:
            raise unusable("port", self.port, "it is outside 1024..49151, or a bootstrap node uses it")

    def is_before(self, major: int, minor: int) -> bool:
        """Whether the release is given and older; without one the current release is assumed."""
        return self.release is not None and self.release < ReleaseLine(major, minor)

    def cluster(self, suffix: str = "") -> str:
        """Return the infra id with a suffix. Raises RenderError: the infra id was not given."""
        if not self.infra_id:
            why = "the names of this platform's groups, tags and rules contain it"
            raise RenderError("UMB160", "the infra id is missing", why, "add --infra-id ID; it is in metadata.json")
        return f"{self.infra_id}{suffix}"

    def named_networks(self, platform: str) -> tuple[IpNetwork, ...]:
        """Return the sources, for a platform that has no narrower name for the cluster's nodes.

        Raises RenderError: none is known; the port is never opened to everyone by default.
        """
        if not self.networks:
            raise RenderError(
                "UMB162",
                f"the source networks of the rule for {platform} are missing",
                "no machine network is known, and the port is not opened to everyone",
                "add --machine-network CIDR as in install-config.yaml, or --source with the nodes' addresses",
            )
        return self.networks


def parse_release(text: str) -> ReleaseLine:
    """Parse `4.18`, or a full version such as `4.18.3`. Raises RenderError: it is not a version."""
    found = RELEASE.fullmatch(text)
    if not found or (int(found[1]), int(found[2])) < OLDEST_KNOWN:
        raise unusable("release", text, "it is not a version such as 4.18 or 4.18.3, from 4.12 on")
    return ReleaseLine(int(found[1]), int(found[2]))


def parse_network(text: str) -> IpNetwork:
    """Parse a CIDR or an address. Raises RenderError: it is neither, or has host bits set."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise unusable("source", text, str(error)) from None


def unusable(field: str, value: object, why: str, remedy: str = "umbilical firewall render --help") -> RenderError:
    return RenderError("UMB160", f"{field} {value!r} is not valid", why, remedy)
