"""Stage 09: the bootstrap machine alone boots."""

from pathlib import Path

from tests.support.live_site import live_site, machines_of

from umbilical.checks.check import Outcome
from umbilical.hardway.stages.s09_install import STAGE


def test_only_the_bootstrap_machine_is_installed(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    for step in STAGE.steps(site):
        step.act()
    assert machines_of(site).calls == ["install bootstrap"]
    assert list(STAGE.inputs(site)) == ["bootstrap"]


def test_it_is_done_when_it_runs_under_its_name(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    (check,) = STAGE.checks(site)
    assert check.judge(site).outcome is Outcome.FAILED
    STAGE.steps(site)[0].act()
    machines_of(site).files["bootstrap", "/etc/hostname"] = b"bootstrap.ocp4.example.com\n"
    assert check.judge(site).outcome is Outcome.PASSED
