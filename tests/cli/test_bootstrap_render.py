"""`umbilical bootstrap render` as a user runs it."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from umbilical.assets.names import OWN
from umbilical.cli import main
from umbilical.cli.bootstrap_options import INSTALLER_NODE_IP

KUBE_APISERVER: Final = """
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers: [{name: kube-apiserver, image: kube-apiserver, command: [kube-apiserver, --v=2]}]
"""


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSTALLER_NODE_IP, raising=False)


def render(*arguments: str) -> int:
    return main.run(["bootstrap", "render", *arguments])


def test_each_file_is_written_with_its_mode_and_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render("--out", str(tmp_path / "out")) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 8
    for mode, size, path in lines:
        file = tmp_path / "out" / path.lstrip("/")
        assert f"{file.stat().st_mode & 0o777:04o}" == mode
        assert file.stat().st_size == int(size)


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert render("--out", out) == 0
    assert render("--out", out, "--mode=http-connect") == 3
    assert "UMB801" in capsys.readouterr().err
    egress = tmp_path / "out" / OWN.egress.lstrip("/")
    assert "GRPC" in egress.read_text()
    assert render("--out", out, "--mode=http-connect", "--overwrite") == 0
    assert "HTTPConnect" in egress.read_text()


def test_a_dash_prints_every_yaml_document_and_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--out", "-") == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    expected = ["EgressSelectorConfiguration", "KubeAPIServerConfig", "Pod", "Namespace", "Secret", "DaemonSet"]
    assert kinds == expected


def test_kubernetes_changes_the_given_manifest(tmp_path: Path) -> None:
    (tmp_path / "kube-apiserver.yaml").write_text(KUBE_APISERVER)
    arguments = ["--shape=kubernetes", f"--kube-apiserver={tmp_path / 'kube-apiserver.yaml'}"]
    arguments += ["--node-ip=10.0.0.5", "--image=registry.example/own:1", f"--out={tmp_path / 'out'}"]
    assert render(*arguments) == 0
    written = tmp_path / "out/etc/kubernetes/manifests/kube-apiserver.yaml"
    command = yaml.safe_load(written.read_bytes())["spec"]["containers"][0]["command"]
    assert command[:2] == ["kube-apiserver", "--v=2"]
    assert command[2].startswith("--egress-selector-config-file=")
    assert (tmp_path / "out/etc/kubernetes/konnectivity/pki/tls.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["--agent-port=6443"], "UMB110", 3),
        (["--shape=kubernetes"], "UMB113", 3),
        (["--kube-apiserver=/nowhere"], "UMB113", 3),
        (["--shape=kubernetes", "--kube-apiserver=/nowhere", "--image=a", "--node-ip=10.0.0.5"], "UMB002", 3),
        (["--ca-cert=/nowhere", "--ca-key=/nowhere"], "UMB117", 3),
        (["--node-ip=10.0.0.5", "--ca-cert=/nowhere", "--ca-key=/nowhere"], "UMB152", 3),
        (["--ca-cert=/nowhere"], "UMB003", 3),
        (["--node-ip=nowhere"], "UMB001", 2),
        (["--shape=round"], "UMB001", 2),
    ],
)
def test_a_wish_that_cannot_be_met_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, status: int
) -> None:
    assert render(f"--out={tmp_path / 'out'}", *arguments) == status
    told = capsys.readouterr()
    assert told.err.startswith(f"{code} ")
    assert len(told.err.splitlines()) == 3
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []
