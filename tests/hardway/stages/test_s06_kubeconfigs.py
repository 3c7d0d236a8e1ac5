"""Stage 06: the kubeconfigs."""

from pathlib import Path

from tests.support.hardway_sites import make_site

from umbilical.hardway.stages.s06_kubeconfigs import STAGE


def test_it_writes_all_of_them_for_their_owner(tmp_path: Path) -> None:
    for step in STAGE.steps(make_site(tmp_path)):
        step.act()
    files = list((tmp_path / "artifacts" / "auth").glob("*.kubeconfig"))
    assert len(files) == 9
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)


def test_its_rules_judge_it_and_it_builds_on_the_keys(tmp_path: Path) -> None:
    assert {"ART-06", "KC-01", "KC-02"} <= {check.id for check in STAGE.checks(make_site(tmp_path))}
    assert STAGE.needs == (5,)
