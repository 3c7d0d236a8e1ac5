"""Rules of the lint as checks of the stage whose files they judge."""

from collections.abc import Callable, Sequence

from umbilical.checks.check import Check, Verdict
from umbilical.checks.report import group_of
from umbilical.hardway.judges.exposure import exposed
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.lint.rule import Rule
from umbilical.hardway.site import Site


def lint_checks(site: Site, groups: Sequence[str], ids: Sequence[str] = ()) -> list[Check[Site]]:
    """Return the rules whose ids begin with one of these groups, or are among `ids`. What they decode is shared."""
    # Only rules about the config ask what git would take, and git is another program.
    seen = exposed(site.folder, site.cluster, site.assets) if "CFG" in groups else None
    facts = Facts(site.cluster, site.assets, site.now(), site.has_tunnel, seen)
    chosen = [rule for rule in RULES if site.cluster.profile in rule.profiles]
    return [_check(rule, facts) for rule in chosen if group_of(rule.id) in groups or rule.id in ids]


def _check(rule: Rule, facts: Facts) -> Check[Site]:
    check = rule.check
    return Check(check.id, check.title, check.why, check.fix, _judge(check.judge, facts))


def _judge(judge: Callable[[Facts], Verdict], facts: Facts) -> Callable[[Site], Verdict]:
    return lambda site: judge(facts)
