"""What a real kubelet says to the configurations: started as nobody in namespaces of its own, it ends at once.

It reads its files, makes up its mind about the API, and then finds no container runtime: that far is far enough.
"""

import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.support.hardway_nodes import content, node_config

import peers
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterProfile

pytestmark = [pytest.mark.real("kubelet", "unshare"), pytest.mark.root]

# The machine that runs the tests may have the old control groups, or swap.
MACHINE: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "failSwapOn": False,
}
NO_RUNTIME: Final = "validate CRI v1 runtime API for endpoint"


class Kubelet:
    """A directory with the files of a node's kubelet, all paths in them moved below it."""

    def __init__(self, folder: Path, node: str) -> None:
        self.folder = folder
        self.config = folder / "kubelet.conf"
        self.drop_ins = folder / "kubelet.conf.d"
        self.drop_ins.mkdir()
        (self.drop_ins / "90-machine.conf").write_text(yaml.safe_dump(MACHINE))
        text = content(node_config(node, ClusterProfile.KUBERNETES), layout.KUBELET_CONFIG)
        self.config.write_text(text.replace("/etc/kubernetes", str(folder)).replace("/run/containerd", str(folder)))

    def replace(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))

    def complaint(self) -> str:
        """Its last line: why it ended."""
        program = peers.binary("kubelet")
        flags = (f"--config={self.config}", f"--config-dir={self.drop_ins}", f"--root-dir={self.folder}/root")
        command = ["unshare", "--user", "--net", str(program), *flags, f"--cert-dir={self.folder}/pki"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode != 0
        return done.stderr.strip().splitlines()[-1]


def test_alone_it_needs_nothing_but_a_runtime(tmp_path: Path) -> None:
    assert NO_RUNTIME in Kubelet(tmp_path, "bootstrap").complaint()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mode: AlwaysAllow", "mode: Webhook", "no client provided, cannot use webhook authorization"),
        ("webhook:\n    enabled: false", "webhook:\n    enabled: true", "no client provided, cannot use webhook"),
    ],
    ids=["authorization", "authentication"],
)
def test_alone_it_ends_where_it_is_to_ask_the_api(tmp_path: Path, old: str, new: str, words: str) -> None:
    kubelet = Kubelet(tmp_path, "bootstrap")
    kubelet.replace(old, new)
    assert words in kubelet.complaint()


def test_a_members_kubelet_ends_without_the_bundle_of_its_clients_signers(tmp_path: Path) -> None:
    complaint = Kubelet(tmp_path, "master-0").complaint()
    assert "kubelet-ca.crt: no such file or directory" in complaint


def test_it_ends_without_the_directory_of_drop_ins(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, "bootstrap")
    (kubelet.drop_ins / "90-machine.conf").unlink()
    kubelet.drop_ins.rmdir()
    assert "kubelet.conf.d" in kubelet.complaint()
