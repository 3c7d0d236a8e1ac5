"""How a check of this room is written: a search for faults, and what must be there for it to make sense."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from umbilical.bootstrap.patch.profile import Profile
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned

MAX_FAULTS: Final = 20

Rule = Check[BootstrapFacts]
Need = Callable[[BootstrapFacts], str | None]
"""Says why a check cannot be made, or None."""


class Doubt(str):
    """A fault that warns and does not fail."""

    __slots__ = ()


def rule(
    identifier: str,
    title: str,
    why: str,
    fix: str,
    search: Callable[[BootstrapFacts], Iterable[str]],
    *needs: Need,
) -> Rule:
    """Make a check that passes when `search` finds no fault."""

    def judge(facts: BootstrapFacts) -> Verdict:
        # One after the other: a later need may rely on an earlier one.
        for need in (readable, *needs):
            reason = need(facts)
            if reason is not None:
                return skipped(reason)
        return _verdict(list(islice(search(facts), MAX_FAULTS)))

    return Check(identifier, title, why, fix, judge)


def readable(facts: BootstrapFacts) -> str | None:
    return None if facts.config is not None else "the file is no Ignition config, see S1"


def tunnel(facts: BootstrapFacts) -> str | None:
    if facts.has_tunnel:
        return None
    reasons = {
        Profile.NONE: "there is no tunnel in it (profile none)",
        Profile.NATIVE_OFF: "the installer's own tunnel is switched off (profile native-off)",
    }
    return reasons.get(facts.found_profile)


def files(*roles: str) -> Need:
    """Need the files of these roles, as fields of `Names` call them."""

    def need(facts: BootstrapFacts) -> str | None:
        paths = [getattr(facts.names, role) for role in roles]
        missing = [path for path in paths if facts.text(path) is None]
        return f"{missing[0]} is missing or cannot be read, see F1 to F8 and S5" if missing else None

    return need


def bootkube(facts: BootstrapFacts) -> str | None:
    return None if facts.bootkube is not None else "bootkube.sh is missing or cannot be read, see S7 and S5"


def _verdict(faults: list[str]) -> Verdict:
    hard = [fault for fault in faults if not isinstance(fault, Doubt)]
    if hard:
        return failed("; ".join(hard))
    return warned("; ".join(faults)) if faults else passed()
