"""`umbilical stage kubectl`, `helm`, `shell`, `logs`, `load-image`: what is refused, what machines are asked for."""

from pathlib import Path

import pytest
from tests.support import hardway_config
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.recording_machines import RecordingMachines
from tests.support.stage_commands import Commands

from umbilical.cli.stage import access
from umbilical.hardway.machines.interface import Power


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: Patch) -> RecordingMachines:
    (tmp_path / "cluster.yaml").write_bytes(hardway_config.content("kubernetes"))
    found = RecordingMachines()
    monkeypatch.setattr(access, "machines_for", lambda cluster, folder: found)
    return found


def test_a_finished_run_ends_with_the_way_into_the_cluster(tmp_path: Path, umbilical: Run, monkeypatch: Patch) -> None:
    commands = Commands(tmp_path, umbilical, monkeypatch)
    assert "umbilical stage kubectl" not in commands("run", "2").err
    shown = commands("run").err
    for words in ("kubectl --dir {} -- get nodes", "shell --dir {} worker-0", "load-image --dir {} FILE.tar"):
        assert f"  umbilical stage {words.format(tmp_path)}   # " in shown
    assert "--image=localhost/shell:lab -- bash" in shown
    assert "umbilical stage kubectl" not in commands("run", "-o", "json").err


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("kubectl", "get", "nodes", "--dir", "x"), 2, "--dir comes before the arguments of kubectl"),
        (("helm", "list", "--dir", "x"), 2, "--dir comes before the arguments of helm"),
        (("kubectl", "--", "get", "nodes"), 4, "UMB770 the cluster has no API yet"),
        (("shell", "nobody"), 2, "there is no node nobody; the nodes are bootstrap, master-0"),
        (("logs", "nobody"), 2, "there is no node nobody"),
        (("logs", "master-0", "no-such-program"), 4, "UMB771 the node has no log of no-such-program"),
        (("load-image", "cluster.yaml"), 4, "UMB772 cluster.yaml was not loaded"),
    ],
)
@pytest.mark.real("kubectl")
def test_what_is_wrong_is_told(
    machines: RecordingMachines,
    tmp_path: Path,
    umbilical: Run,
    monkeypatch: Patch,
    words: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in umbilical("stage", *words, status=status).err


def test_an_image_goes_to_the_nodes_that_are_on(
    machines: RecordingMachines, tmp_path: Path, umbilical: Run, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = tmp_path / "image.tar"
    archive.touch()
    machines.powers = {"bootstrap": Power.OFF, "master-0": Power.ON}
    machines.images = ["docker.io/library/web:1"]
    done = umbilical("stage", "load-image", "image.tar")
    assert done.out == "master-0: docker.io/library/web:1\n"
    assert machines.calls == [f"load_image master-0 {archive}"]
    assert done.err == ""
    machines.images = ["docker.io/library/web:latest"]
    assert "imagePullPolicy: IfNotPresent" in umbilical("stage", "load-image", "image.tar").err
