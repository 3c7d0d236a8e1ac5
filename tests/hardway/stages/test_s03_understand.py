"""Stage 03: the graph is shown, and whole."""

from pathlib import Path

from tests.support.hardway_sites import make_site
from tests.support.made_up_stages import Lines

from umbilical.checks.check import Outcome
from umbilical.hardway.stages.s03_understand import STAGE, lines


def test_it_says_what_comes_from_what_and_who_writes_it(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    told = lines(site)
    assert "kubeconfigs (stage 06) from the config and pki" in told
    assert any(line.startswith("stage 08 writes ignition (3)") for line in told)
    assert not any(line.endswith("writes ") for line in told)
    reporter = site.reporter
    assert isinstance(reporter, Lines)
    STAGE.steps(site)[0].act()
    assert reporter.lines == [f"saw {line}" for line in told]


def test_a_file_that_nobody_or_everybody_writes_is_seen(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    (check,) = STAGE.checks(site)
    assert check.judge(site).outcome is Outcome.PASSED
    files = dict(site.files)
    site.files = {**files, 8: files[8][1:], 9: files[5][:1]}
    verdict = check.judge(site)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.evidence == f"no stage writes {files[8][0]}; two stages write {files[5][0]}"
