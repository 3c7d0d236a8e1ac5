"""Stage 07: static pods and manifests."""

from pathlib import Path

from tests.support.hardway_sites import make_site

from umbilical.hardway.stages.s07_manifests import STAGE


def test_it_writes_pods_and_objects_and_removes_those_of_a_node_that_is_gone(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for step in STAGE.steps(site):
        step.act()
    stale = tmp_path / "artifacts" / "static-pods" / "worker-9" / "kube-proxy.yaml"
    stale.parent.mkdir()
    stale.write_bytes(b"x")
    steps = STAGE.steps(site)
    assert steps[-1].command == "rm artifacts/static-pods/worker-9/kube-proxy.yaml"
    steps[-1].act()
    assert not stale.exists()
    assert (tmp_path / "artifacts" / "static-pods" / "bootstrap").is_dir()


def test_the_rules_of_both_halves_judge_it(tmp_path: Path) -> None:
    ids = {check.id for check in STAGE.checks(make_site(tmp_path, "openshift"))}
    assert {"CVO-01", "CRD-01", "FG-01", "ETC-01", "INF-01", "MAN-01", "HO-01", "BK-03", "KN-01"} <= ids
