"""Stage 14: workers boot, all of them and nobody else."""

from pathlib import Path

from tests.support.live_site import live_site, machines_of, switch_on

from umbilical.checks.check import Outcome
from umbilical.hardway.stages.live import started_key
from umbilical.hardway.stages.s14_workers import STAGE


def test_every_worker_is_installed_and_its_boot_is_noted(tmp_path: Path) -> None:
    site = live_site(tmp_path, workers=2)
    for _ in range(2):
        for step in STAGE.steps(site):
            step.act()
    assert machines_of(site).calls == ["install worker-0", "install worker-1"]
    assert set(site.notes) == {started_key(node) for node in site.cluster.workers}


def test_it_is_done_when_all_of_them_run(tmp_path: Path) -> None:
    site = live_site(tmp_path, workers=2)
    assert {check.judge(site).outcome for check in STAGE.checks(site)} == {Outcome.FAILED}
    switch_on(site)
    assert {check.judge(site).outcome for check in STAGE.checks(site)} == {Outcome.PASSED}
