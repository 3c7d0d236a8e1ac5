"""Stage 08: one file for each node."""

from pathlib import Path

from tests.support.hardway_sites import make_site

from umbilical.hardway.stages.s08_ignition import STAGE


def test_every_node_has_its_file_which_is_secret(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for step in STAGE.steps(site):
        step.act()
    for node in site.cluster.nodes:
        path = tmp_path / "artifacts" / "ignition" / f"{node.id}.ign"
        assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_stale_when_what_it_is_made_from_is(tmp_path: Path) -> None:
    assert STAGE.needs == (4, 5, 6, 7)
    assert {"IGN-01", "IGN-05", "BK-01", "CRIO-01", "SE-01", "AU-01"} <= {
        check.id for check in STAGE.checks(make_site(tmp_path, "openshift"))
    }
