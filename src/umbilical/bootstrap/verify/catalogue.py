"""All checks of a bootstrap.ign in one list, their groups, and the first plan's checklist mapped to them."""

from dataclasses import dataclass
from shlex import quote
from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, INLINE, TunnelNames
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG
from umbilical.bootstrap.verify.egress_rules import EGRESS_RULES
from umbilical.bootstrap.verify.extras import EXTRAS
from umbilical.bootstrap.verify.facts import BootstrapCheck, BootstrapFacts
from umbilical.bootstrap.verify.files import FILES
from umbilical.bootstrap.verify.order import ORDER
from umbilical.bootstrap.verify.pod_rules import POD_RULES
from umbilical.bootstrap.verify.script_rules import SCRIPT_RULES
from umbilical.bootstrap.verify.structure import STRUCTURE
from umbilical.checks.check import Finding, run_checks

CATALOGUE: Final[tuple[BootstrapCheck, ...]] = (
    *STRUCTURE,
    *FILES,
    *EGRESS_RULES,
    *POD_RULES,
    *SCRIPT_RULES,
    *ORDER,
    *EXTRAS,
)
GROUPS: Final = {
    "S": "Structure of the config",
    "F": "Files of the tunnel",
    "C": "Content of the files",
    "B": "Order in bootkube.sh",
    "X": "Other checks",
}


@dataclass(frozen=True)
class PlanItem:
    """An item of the validation checklist of the tunnel's first plan (task 2.6)."""

    title: str
    checks: tuple[str, ...]
    """Ids of the checks that cover it."""
    role: str
    """The file that its command prints: a field of `TunnelNames`, or `bootkube`."""
    words: str = ""
    """Only the lines with these words; all without any."""

    def command(self, names: TunnelNames, file: str) -> str:
        """Return the plan's jq command, for a file whose tunnel has these names."""
        path: str = BOOTKUBE if self.role == "bootkube" else getattr(names, self.role)
        lines = f" | grep -e {quote(self.words)}" if self.words else ""
        if names is INLINE and self.role in ("server_pod", "agent_daemon_set"):
            path, lines = BOOTKUBE, f" | grep -A45 {quote(f'> {path} <<')}"
        select = quote(f'.storage.files[] | select(.path == "{path}") | .contents.source')
        return f"jq -r {select} {quote(file)} | sed 's/^[^,]*,//' | base64 -d{lines}"


FIRST_PLAN: Final = {
    1: PlanItem("EgressSelectorConfiguration file exists", ("F1", "F2", "C1", "C2"), "egress"),
    2: PlanItem("KONNECTIVITY_IMAGE variable defined", ("C5", "C8"), "library", "KONNECTIVITY_IMAGE="),
    3: PlanItem("Konnectivity server static pod manifest creation", ("F3", "C3", "C5"), "server_pod"),
    4: PlanItem("Konnectivity agent DaemonSet manifest creation", ("F6", "C6", "C7"), "agent_daemon_set"),
    5: PlanItem("Config override flag in the render command", ("B3",), "bootkube", OVERRIDE_FLAG),
}
"""Item 1 of the plan expects a file without effect: C1 and C2 check the file that kube-apiserver reads."""


def verify(facts: BootstrapFacts, rules: tuple[BootstrapCheck, ...] = CATALOGUE) -> list[Finding]:
    """Run these checks on a file. Never raises, whatever its content."""
    return run_checks(rules, facts)
