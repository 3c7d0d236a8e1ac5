"""The description of a platform: its rules, the commands of its tools, and leftovers.

Each module of this package has one `Platform` with only what differs; `forms/` writes it in each output form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest

Json = Any


class RuleSideKind(Enum):
    NETWORK = "network"
    GROUP = "security group"
    ROLE = "security group of role"
    TAG = "network tag"
    SERVICE_TAG = "service tag"
    HOST = "host"
    ANYWHERE = "anywhere"


@dataclass(frozen=True)
class RuleSide:
    """The source or target of a rule, in the platform's own terms."""

    kind: RuleSideKind
    value: str

    def __str__(self) -> str:
        return self.kind.value if self.kind is RuleSideKind.ANYWHERE else f"{self.kind.value} {self.value}"


BOOTSTRAP_HOST: Final = RuleSide(RuleSideKind.HOST, "the bootstrap machine")
ANYWHERE: Final = RuleSide(RuleSideKind.ANYWHERE, "0.0.0.0/0")


@dataclass(frozen=True)
class FirewallRule:
    """Inbound TCP to one port. Nothing else is ever opened."""

    name: str
    port: int
    sources: tuple[RuleSide, ...]
    target: RuleSide
    description: str = ""
    priority: int | None = None
    protocol: str = "tcp"


class Remover(Enum):
    INSTALLER = "the installer, with the bootstrap machine"
    USER = "you"
    NOBODY = "nobody"
    """The installer creates the rule and never removes it."""


@dataclass(frozen=True)
class RuleRemoval:
    """Who removes the rule, for one range of releases."""

    releases: str
    by: Remover
    remark: str = ""


@dataclass(frozen=True)
class ShellVariable:
    """A shell variable in a command, with the text before it: `Values=` and `group` make `Values="$group"`."""

    name: str
    prefix: str = ""


Word = str | ShellVariable


@dataclass(frozen=True)
class ToolCommand:
    words: tuple[Word, ...]
    pipe: tuple[tuple[Word, ...], ...] = ()
    """Further programs of the pipeline."""
    into: str = ""
    """Shell variable for the output."""


@dataclass(frozen=True)
class Need:
    """A value that only the user knows; the script stops with this text if the variable is not set."""

    variable: str
    meaning: str


@dataclass(frozen=True)
class RuleCommands:
    """The rule as commands of a platform's own program."""

    needs: tuple[Need, ...] = ()
    prepare: tuple[ToolCommand, ...] = ()
    open: tuple[ToolCommand, ...] = ()
    close: tuple[ToolCommand, ...] = ()
    show: tuple[ToolCommand, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A Terraform expression, written without quotes. Never contains user input."""

    expression: str


@dataclass(frozen=True)
class TerraformBlock:
    """A block of a Terraform configuration: a resource, data source or variable, or a nested block."""

    kind: str
    labels: tuple[str, ...] = ()
    attributes: Mapping[str, Any] | None = None
    blocks: tuple["TerraformBlock", ...] = ()


class Each(Enum):
    """In a path: every element of a list."""

    ELEMENT = "*"


@dataclass(frozen=True)
class Named:
    """In a path: the element of a list with this `name`."""

    name: str


PathStep = str | Each | Named


@dataclass(frozen=True)
class ManifestEdit:
    """Items for a list in one of the installer's Cluster API manifests."""

    file: str
    kind: str
    path: tuple[PathStep, ...]
    items: tuple[Mapping[str, Json], ...]
    opens: Callable[[Mapping[str, Json]], bool]
    """Whether an item of that list already allows the port."""


@dataclass(frozen=True)
class Platform:
    name: str
    rule: str
    """The rule's name, with `<infra-id>` as a placeholder; a hyphen if the user names it."""
    source: str
    target: str
    made_by: str
    """Who creates it in releases with the installer's own tunnel."""
    removals: tuple[RuleRemoval, ...]
    rules: Callable[[RuleRequest], tuple[FirewallRule, ...]]
    leftovers: Callable[[RuleRequest], RuleCommands]
    """Commands that find and remove leftovers, the installer's own included; only `close` and `show` are used."""
    remarks: tuple[str, ...] = ()
    commands: Callable[[RuleRequest], RuleCommands] | None = None
    blocks: Callable[[RuleRequest], tuple[TerraformBlock, ...]] | None = None
    edit: Callable[[RuleRequest], ManifestEdit] | None = None
    edit_since: ReleaseLine | None = None
    """First release whose installer writes that manifest."""
    why_no_edit: str = ""
    names_nodes: bool = False
    """Whether the rule selects nodes by the cluster's groups or tags: narrower than any network."""
    is_host_filtered: bool = False
    """Whether only a filter of the host or the site applies, so that nftables and firewalld can be used."""

    @property
    def leaks(self) -> bool:
        return any(removal.by is Remover.NOBODY for removal in self.removals)
