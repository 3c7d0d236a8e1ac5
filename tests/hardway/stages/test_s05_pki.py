"""Stage 05: keys of this cluster, for nobody else."""

from pathlib import Path

from tests.support.hardway_sites import make_site

from umbilical.hardway.stages.s05_pki import STAGE


def test_keys_are_secret_and_stay_as_they_are(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for step in STAGE.steps(site):
        step.act()
    keys = {path.name: path.read_bytes() for path in (tmp_path / "artifacts" / "tls").glob("*.key")}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "artifacts" / "tls").glob("*.key"))
    assert len(keys) > 20
    for step in STAGE.steps(site):
        step.act()
    assert {path.name: path.read_bytes() for path in (tmp_path / "artifacts" / "tls").glob("*.key")} == keys


def test_the_rules_about_certificates_judge_it(tmp_path: Path) -> None:
    ids = [check.id for check in STAGE.checks(make_site(tmp_path))]
    assert ids[0] == "ART-05"
    assert {"PKI-01", "PKI-02", "PKI-03", "PKI-09"} <= set(ids)
