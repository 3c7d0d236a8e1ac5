"""What a kubelet finds on its node: started once, with a control group that `down` knows of."""

from collections.abc import Iterator

import pytest
from tests.support.labs import running

from umbilical.lab import binaries, cgroups
from umbilical.lab.kubelet import containerd, node_runtime
from umbilical.lab.lab import Lab
from umbilical.lab.runner import RunnerKind

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(240),
    pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path = tmp_path_factory.mktemp("runtime") / "lab"
    with running(path, runner=RunnerKind.KUBELET, binaries=binaries.find(["kubelet"])) as lab:
        yield lab


def test_a_nodes_group_lies_in_the_labs_own_which_is_written_down(lab: Lab) -> None:
    group = node_runtime.make_group(lab, "master-0")
    assert group == node_runtime.group_of(lab, "master-0") == f"{lab.state.cgroup}/master-0"
    assert cgroups.find(group) != []


def test_containerd_is_started_once_and_has_the_labs_images(lab: Lab) -> None:
    node_runtime.start_containerd(lab, "master-0")
    before = [one.pid for one in lab.processes() if one.name == containerd.PROCESS]
    node_runtime.start_containerd(lab, "master-0")
    assert [one.pid for one in lab.processes() if one.name == containerd.PROCESS] == before
    images = containerd.ctr(lab, "master-0", "images", "ls", "-q").check().text.split()
    assert {"localhost/umbilical:lab", "localhost/apiserver-network-proxy:lab"} <= set(images)


def test_stopping_what_does_not_run_is_fine(lab: Lab) -> None:
    lab.start("bootstrap", "sleeper", ["sleep", "1000"])
    assert node_runtime.is_running(lab, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab, "bootstrap", "sleeper")
    assert not node_runtime.is_running(lab, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab, "bootstrap", "sleeper")
