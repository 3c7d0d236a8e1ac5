"""Files of the tunnel on a machine: found, removed, listed; nothing else is touched."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.ssh_daemon import PROGRAMS, ssh_daemon

from umbilical.bootstrap.errors import BootstrapError
from umbilical.bootstrap.node_cleanup import PATHS, CleanedFile, FileState, clean_node
from umbilical.host.ssh import Completed, LocalRunner


def machine(root: Path) -> Path:
    """Everything that a tunnel of either kind leaves, and neighbours that must stay."""
    for path in PATHS:
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(("pki", "konnectivity")):
            place.mkdir()
            (place / "tls.key").write_text("secret")
        elif not path.endswith(".socket"):
            place.write_text("content")
    (root / "etc/kubernetes/manifests/kube-apiserver-pod.yaml").write_text("kept")
    (root / "etc/kubernetes/bootstrap-configs/egress-selector-config.yaml").write_text("kept")
    (root / "opt/openshift/tls/root-ca.crt").write_text("kept")
    return root


def make_sockets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in PATHS:
        if path.endswith(".socket"):
            # A socket's path has 107 bytes at most, and pytest's are long.
            monkeypatch.chdir((root / path.lstrip("/")).parent)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(Path(path).name)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_everything_of_the_tunnel_goes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sockets(machine(tmp_path), monkeypatch)
    assert clean_node(LocalRunner(), str(tmp_path)) == [CleanedFile(path, FileState.REMOVED) for path in PATHS]
    assert files(tmp_path) == {
        "etc/kubernetes/manifests/kube-apiserver-pod.yaml",
        "etc/kubernetes/bootstrap-configs/egress-selector-config.yaml",
        "opt/openshift/tls/root-ca.crt",
    }
    assert clean_node(LocalRunner(), str(tmp_path)) == []


@pytest.mark.real(*PROGRAMS)
def test_a_machine_is_cleaned_over_ssh(tmp_path: Path) -> None:
    folder, root = tmp_path / "daemon", machine(tmp_path / "a root")
    folder.mkdir()
    with ssh_daemon(folder) as daemon, daemon.runner(sudo=True) as runner:
        removed = {file.path for file in clean_node(runner, str(root))}
    assert removed == {path for path in PATHS if not path.endswith(".socket")}
    assert not list(root.rglob("tls.key"))


def test_a_dry_run_lists_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sockets(machine(tmp_path), monkeypatch)
    before = files(tmp_path)
    assert {file.state for file in clean_node(LocalRunner(), str(tmp_path), dry_run=True)} == {FileState.FOUND}
    assert files(tmp_path) == before


def test_a_link_goes_and_what_it_points_to_stays(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "tls.key").write_text("kept")
    link = tmp_path / "root/opt/openshift/umbilical/pki"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    dangling = tmp_path / "root/etc/kubernetes/manifests/konnectivity-server-pod.yaml"
    dangling.parent.mkdir(parents=True)
    dangling.symlink_to("nowhere")
    assert len(clean_node(LocalRunner(), str(tmp_path / "root"))) == 2
    assert not os.path.lexists(link)
    assert (target / "tls.key").exists()


def test_a_root_with_blanks_and_quotes_is_no_danger(tmp_path: Path) -> None:
    root = tmp_path / "it's a $(touch pwned) root"
    root.mkdir()
    machine(root)
    assert clean_node(LocalRunner(), str(root))
    assert not (tmp_path / "pwned").exists()


class Told:
    def __init__(self, done: Completed) -> None:
        self._done = done

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> Completed:
        return self._done


def test_a_file_that_cannot_be_removed_is_told_with_the_reason() -> None:
    done = Completed(0, "failed\t/etc/a\tOperation not permitted\nnoise\nremoved\t/etc/b\t\n", "")
    assert clean_node(Told(done)) == [
        CleanedFile("/etc/a", FileState.FAILED, "Operation not permitted"),
        CleanedFile("/etc/b", FileState.REMOVED),
    ]


@pytest.mark.parametrize("stderr", ["sudo: a password is required\n", ""])
def test_a_machine_that_does_not_let_us_is_told(stderr: str) -> None:
    with pytest.raises(BootstrapError) as caught:
        clean_node(Told(Completed(1, "", stderr)))
    assert caught.value.code == "UMB610"
    assert caught.value.why == (stderr.strip() or "exit status 1")


@pytest.mark.root
def test_only_root_cleans_a_real_machine() -> None:
    """Who may not look into a directory would report that no keys are there."""

    class Nobody:
        def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> Completed:
            drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            return LocalRunner().run([*drop, *command], timeout_seconds, stdin)

    with pytest.raises(BootstrapError, match="only root"):
        clean_node(Nobody(), dry_run=True)
