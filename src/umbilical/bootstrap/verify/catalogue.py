"""All checks of a bootstrap.ign in one list, their groups, and the first plan's checklist mapped to them."""

from typing import Final

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
FIRST_PLAN: Final = {
    1: ("EgressSelectorConfiguration file exists", ("F1", "F2", "C1", "C2")),
    2: ("KONNECTIVITY_IMAGE variable defined", ("C5", "C8")),
    3: ("Konnectivity server static pod manifest creation", ("F3", "C3", "C5")),
    4: ("Konnectivity agent DaemonSet manifest creation", ("F6", "C6", "C7")),
    5: ("Config override flag in the render command", ("B3",)),
}
"""The validation checklist of the tunnel's first plan (task 2.6), and the checks that cover each item.

Item 1 there expects a file without effect: C1 and C2 check the file that kube-apiserver reads.
"""


def verify(facts: BootstrapFacts, rules: tuple[BootstrapCheck, ...] = CATALOGUE) -> list[Finding]:
    """Run these checks on a file. Never raises, whatever its content."""
    return run_checks(rules, facts)
