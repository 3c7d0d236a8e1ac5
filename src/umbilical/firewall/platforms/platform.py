"""What a platform tells about the way that agents take to the server: rules, words of its tools, and what is left over.

One `Platform` per module beside this one holds only what differs; `assets/firewall` writes it down in each form.
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
    """One side of a rule, in the platform's own terms."""

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
    """The installer makes the rule, and leaves it behind."""


@dataclass(frozen=True)
class RuleRemoval:
    """Who takes the rule away again, for one line of releases."""

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
    """Further programs that its output goes through."""
    into: str = ""
    """The shell variable that takes what comes out."""


@dataclass(frozen=True)
class Need:
    """A value that only the user knows; the script stops with these words where it is not set."""

    variable: str
    meaning: str


@dataclass(frozen=True)
class RuleCommands:
    """The rule in the words of a platform's own program."""

    needs: tuple[Need, ...] = ()
    prepare: tuple[ToolCommand, ...] = ()
    open: tuple[ToolCommand, ...] = ()
    close: tuple[ToolCommand, ...] = ()
    show: tuple[ToolCommand, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A Terraform expression that goes in unquoted. Never made of what a user typed."""

    expression: str


@dataclass(frozen=True)
class TerraformBlock:
    """One block of a Terraform configuration: a resource, a data source, a variable, or one nested in those."""

    kind: str
    labels: tuple[str, ...] = ()
    attributes: Mapping[str, Any] | None = None
    blocks: tuple["TerraformBlock", ...] = ()


class Each(Enum):
    """Stands in a path for every element of a list."""

    ELEMENT = "*"


@dataclass(frozen=True)
class Named:
    """Stands in a path for the element of a list whose `name` is this."""

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
    """Whether an item of that list lets the port in already, whoever wrote it."""


@dataclass(frozen=True)
class Platform:
    name: str
    rule: str
    """The rule's name, `<infra-id>` for the cluster's; a hyphen where the user names it."""
    source: str
    target: str
    made_by: str
    """By whom in releases that have the tunnel built in."""
    removals: tuple[RuleRemoval, ...]
    rules: Callable[[RuleRequest], tuple[FirewallRule, ...]]
    leftovers: Callable[[RuleRequest], RuleCommands]
    """How to find and remove what is left, the installer's own included; only `close` and `show` count."""
    remarks: tuple[str, ...] = ()
    commands: Callable[[RuleRequest], RuleCommands] | None = None
    blocks: Callable[[RuleRequest], tuple[TerraformBlock, ...]] | None = None
    edit: Callable[[RuleRequest], ManifestEdit] | None = None
    edit_since: ReleaseLine | None = None
    """The first release whose installer writes that manifest."""
    why_no_edit: str = ""
    names_nodes: bool = False
    """Whether the rule names nodes by groups or tags of the cluster's: narrower than any network."""
    is_host_filtered: bool = False
    """Whether nothing but the host's or the site's own filter stands in the way: nftables and firewalld then."""

    @property
    def leaks(self) -> bool:
        return any(removal.by is Remover.NOBODY for removal in self.removals)
