"""The bench of the hard way's rendering: that it runs what it says, with the goal that is said."""

from pathlib import Path

import pytest

import bench_hardway
from umbilical.fault import Fault


def test_both_profiles_are_rendered_for_six_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_hardway.main(["--smoke"]) == 0
    told = capsys.readouterr().out
    assert "stage plan, openshift, six nodes" in told
    assert "stage plan, kubernetes, six nodes" in told
    assert "goal 3 s" in told


def test_a_cluster_that_cannot_be_made_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_hardway, "NODES", {"nodes__masters__count": "many"})
    with pytest.raises(Fault, match="UMB700"):
        bench_hardway.make_cluster(tmp_path, "kubernetes")
