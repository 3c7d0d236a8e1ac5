"""What the scene of a patched config asks and answers; how it runs is shown by its scenario."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from umbilical.host.bash import syntax_complaint
from umbilical.ignition.config import read_config
from umbilical.lab import patched_scene
from umbilical.lab.cast import UPSTREAM, Cast
from umbilical.lab.errors import LabError
from umbilical.lab.kubernetes_scene import Plane
from umbilical.lab.lab import Completed, ProcessStatus
from umbilical.lab.patched_scene import OC, UNIT, PatchedScene
from umbilical.lab.paths import LabDirectory
from umbilical.lab.story import Story
from umbilical.lab.topology import plan_topology


class _Lab(SimpleNamespace):
    """Answers every command well and remembers it."""

    def exec(self, node: str, command: list[str], **options: Any) -> Completed:
        self.asked.append((node, command))
        return Completed(node, tuple(command), 0, b"", b"")

    def processes(self) -> list[ProcessStatus]:
        return [ProcessStatus("bootstrap", UNIT, 1, self.exit_code)]

    def log(self, node: str, name: str) -> str:
        return "one\ntwo\nthree\nboom\n"

    def read(self, node: str, path: str) -> bytes:
        return json.dumps(self.record).encode()


def scene(tmp_path: Path, cast: Cast | None = None) -> tuple[PatchedScene, Any]:
    lab: Any = _Lab(runner=None, topology=plan_topology(masters=2, workers=1), asked=[], exit_code=None)
    lab.directory = LabDirectory(tmp_path)
    (tmp_path / "logs").mkdir()
    return PatchedScene(lab, cast or Cast(server_image=UPSTREAM), Story("a test")), lab


def test_a_machine_without_the_node_s_programs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patched_scene, "NEEDED", ("no-such-program", "sh"))
    with pytest.raises(LabError, match="UMB822") as caught:
        scene(tmp_path)[0].check_machine()
    assert caught.value.what.endswith("no-such-program")


def test_the_config_is_for_root_alone_and_the_api_has_an_address_of_its_own(tmp_path: Path) -> None:
    made, lab = scene(tmp_path)
    path = made.write_config()

    assert path.stat().st_mode & 0o777 == 0o600
    assert made.api_address == "10.91.0.5"
    assert made.api_address not in {node.address for node in lab.topology.nodes}
    assert made.api_address in made.certificate_names().names
    files = read_config(path.read_bytes())
    internal, loopback = (files.file(f"/opt/openshift/auth/{name}") for name in ("kubeconfig", "kubeconfig-loopback"))
    assert internal is not None
    assert "server: https://10.91.0.5:6443" in internal.text()
    assert loopback is not None
    assert "10.91.0.5" not in loopback.text()


@pytest.mark.parametrize(
    ("cast", "image"), [(Cast(server_image=UPSTREAM), "${KONNECTIVITY_IMAGE}"), (Cast(), "localhost/umbilical:lab")]
)
def test_the_patch_is_the_command_that_users_run(tmp_path: Path, cast: Cast, image: str) -> None:
    made, _ = scene(tmp_path, cast)
    patched, said = made.patch(made.write_config())

    assert "bootkube.sh of 4.18 recognised" in said[0]
    assert "0 failed" in said[-1]
    pod = read_config(patched.read_bytes()).file("/opt/openshift/umbilical/konnectivity-server-pod.yaml")
    assert pod is not None
    assert f"image: {image}" in pod.text()
    assert patched.stat().st_mode & 0o777 == 0o600


def test_a_command_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    made, _ = scene(tmp_path)
    (tmp_path / "broken.ign").write_text("{}")
    with pytest.raises(LabError, match="UMB857") as caught:
        made.patch(tmp_path / "broken.ign")
    assert "UMB" in caught.value.why


def test_the_api_s_address_leaves_one_node_before_another_has_it(tmp_path: Path) -> None:
    made, lab = scene(tmp_path)
    made.move_api(Plane.PRODUCTION.value)

    changes = [(node, command[2]) for node, command in lab.asked if command[1] == "address"]
    assert changes == [("bootstrap", "del"), ("master-0", "add")]
    flushed = [node for node, command in lab.asked if command[1] == "neighbour"]
    assert flushed == [node.name for node in lab.topology.nodes]


def test_a_script_that_failed_for_good_ends_every_wait(tmp_path: Path) -> None:
    made, lab = scene(tmp_path)
    lab.exit_code = 1
    with pytest.raises(LabError, match="UMB856") as caught:
        made.wait_for_certificates()
    assert caught.value.why == "two | three | boom"
    assert str(tmp_path) in caught.value.remedy


def test_stages_are_read_from_the_service_record(tmp_path: Path) -> None:
    made, lab = scene(tmp_path)
    lab.record = [
        {"phase": "service start"},
        {"phase": "stage start", "stage": "konnectivity-certs"},
        {"phase": "stage end", "stage": "konnectivity-certs", "result": "success"},
    ]
    assert [(stage.name, stage.result) for stage in made.stages()] == [("konnectivity-certs", "success")]


def test_oc_is_kubectl_but_for_what_only_openshift_has(tmp_path: Path) -> None:
    (tmp_path / "oc").write_text(OC)
    (tmp_path / "kubectl").write_text('#!/bin/bash\necho "kubectl $*"\n')
    for name in ("oc", "kubectl"):
        (tmp_path / name).chmod(0o755)

    def oc(*words: str) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        command = [str(tmp_path / "oc"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=environment)
        return done.stdout.strip()

    assert syntax_complaint(OC.encode()) is None
    assert oc("adm", "release", "info", "--version", "x") == "4.18.0-lab"
    assert oc("patch", "clusterversion", "version") == ""
    assert oc("delete", "namespace", "a", "--wait=false") == "kubectl delete namespace a --wait=false"
