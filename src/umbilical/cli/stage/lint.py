"""`umbilical stage lint`: check artifacts with the lint rules and with external validators."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.checks.check import Finding, Outcome
from umbilical.cli.findings import (
    apply_options,
    chosen,
    listed,
    refuse_emptiness,
    report,
    report_options,
    status,
    which_options,
)
from umbilical.cli.stage.cluster import directory_option, utc_now
from umbilical.cli.terminal import has_colour

if TYPE_CHECKING:
    from umbilical.hardway.lint.facts import LintFacts
    from umbilical.hardway.rendering import Rendered


NO_RELEASE: Final = "the release is not extracted yet: umbilical stage run 04"
INDEPENDENT: Final = frozenset({"CFG-01", "CFG-02", "CFG-03", "CFG-04", "CFG-07", "HA", "LV"})
"""Rules and groups that need no release."""


@click.command()
@directory_option
@apply_options(which_options("PKI-01,HA-02"))
@click.option(
    "--judges/--no-judges",
    default=True,
    show_default=True,
    help="Also run external validators (openssl, haproxy, etcd ...) that are installed.",
)
@click.option(
    "--bin-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory to search first for external validators; then the cache of `make peers`, then PATH.",
)
@click.option("--list", "lists", is_flag=True, help="List the rules and exit.")
@apply_options(report_options())
def lint(
    folder: Path,
    only: tuple[re.Pattern[str], ...],
    skip: tuple[re.Pattern[str], ...],
    judges: bool,
    bin_dir: Path | None,
    lists: bool,
    output: str,
    fail_on: str,
) -> int:
    """Check the artifacts in DIR against the lint rules.

    An existing file is checked as it is on disk, a missing one as it would be written. Nothing is written, and no
    cluster is contacted. The exit status is 1 if a rule fails.
    """
    if lists:
        click.echo(_listed(only, skip), nl=False)
        return 0
    from umbilical.hardway import rendering

    rendered = rendering.render(folder, utc_now())
    facts = _facts(folder, rendered)
    findings = _by_rules(facts, rendered, only, skip)
    if judges:
        findings += _by_judges(facts, rendered, bin_dir, only, skip)
    refuse_emptiness(findings)
    _print_notes(rendered, folder)
    details = {"cluster": facts.cluster.name, "profile": facts.cluster.profile.value}
    text = report(findings, output, kind="LintReport", suite="stage.lint", details=details, groups=_headings())
    click.echo(text, nl=False, color=has_colour())
    return status(findings, fail_on)


def _facts(folder: Path, rendered: "Rendered") -> "LintFacts":
    """Take files as they are on disk before rendered ones: manual changes must be checked."""
    from umbilical.hardway.lint.facts import LintFacts
    from umbilical.hardway.validators.exposure import exposed

    assets = {**{asset.path: asset for asset in rendered.made.tree}, **rendered.on_disk}
    secrets = exposed(folder, rendered.cluster, assets)
    return LintFacts(rendered.cluster, assets, utc_now(), rendered.has_tunnel, secrets)


def _by_rules(
    facts: "LintFacts", rendered: "Rendered", only: Sequence[re.Pattern[str]], skip: Sequence[re.Pattern[str]]
) -> list[Finding]:
    from umbilical.hardway.lint.catalogue import RULES, judge

    rules = [rule for rule in chosen(RULES, only, skip) if rendered.cluster.profile in rule.profiles]
    findings = judge(facts, rules)
    return findings if rendered.has_release else [_without_release(finding) for finding in findings]


def _by_judges(
    facts: "LintFacts",
    rendered: "Rendered",
    bin_dir: Path | None,
    only: Sequence[re.Pattern[str]],
    skip: Sequence[re.Pattern[str]],
) -> list[Finding]:
    from umbilical.hardway.validators.catalogue import VALIDATORS, run_validators
    from umbilical.lab.binaries import locate

    findings = run_validators(facts, lambda name: locate(name, bin_dir), tuple(chosen(VALIDATORS, only, skip)))
    return findings if rendered.has_release else [_without_release(finding) for finding in findings]


def _without_release(finding: Finding) -> Finding:
    """Skip a failed rule whose result depends on the missing release."""
    from umbilical.checks.report import group_of

    is_independent = not INDEPENDENT.isdisjoint((finding.id, group_of(finding.id)))
    if is_independent or finding.outcome not in (Outcome.FAILED, Outcome.WARNED):
        return finding
    return replace(finding, outcome=Outcome.SKIPPED, evidence=NO_RELEASE)


def _print_notes(rendered: "Rendered", folder: Path) -> None:
    """Print which files were missing or differ from the rendering."""
    tree = rendered.made.tree
    missing = sum(asset.path not in rendered.on_disk for asset in tree)
    changed = [asset.path for asset in tree if rendered.on_disk.get(asset.path, asset) != asset]
    if missing:
        click.echo(f"note: {missing} of {len(tree)} files do not exist yet; their rendering was checked", err=True)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        told = f"{changed[0]}{more} differ from what the config renders"
        click.echo(f"note: {told}; umbilical stage plan --dir {folder} shows how", err=True)


def _headings() -> dict[str, str]:
    from umbilical.hardway.lint.catalogue import GROUPS
    from umbilical.hardway.validators.catalogue import GROUP, HEADING

    return {**GROUPS, GROUP: HEADING}


def _listed(only: Sequence[re.Pattern[str]], skip: Sequence[re.Pattern[str]]) -> str:
    from umbilical.hardway.lint.catalogue import RULES
    from umbilical.hardway.validators.catalogue import VALIDATORS

    return listed(chosen([*(rule.check for rule in RULES), *VALIDATORS], only, skip), _headings(), 7)
