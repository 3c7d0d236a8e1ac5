"""The containerd of a node: its configuration as TOML, its table of tasks, and the real one in a lab."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.labs import running

from umbilical.lab.errors import LabError
from umbilical.lab.kubelet import containerd
from umbilical.lab.kubelet.needs import find_cni
from umbilical.lab.lab import Lab
from umbilical.lab.runner import RunnerKind

NODE = "master-0"


def test_the_configuration_says_what_this_machine_needs() -> None:
    document = tomllib.loads(containerd.config("native", Path("/usr/lib/cni")))
    assert document["root"] == "/var/lib/containerd"
    assert document["grpc"]["address"] == containerd.SOCKET
    runtime = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert runtime["sandbox_image"] == "localhost/pause:1"
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["disable_apparmor"] is True
    assert runtime["containerd"]["snapshotter"] == "native"
    assert runtime["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"}


def test_running_tasks_have_a_pid() -> None:
    shown = "TASK    PID    STATUS    \nabc     286    RUNNING\ndef     0      STOPPED\n"
    assert containerd.parse_tasks(shown) == {"abc": 286}


@given(st.text(st.characters(codec="utf-8", exclude_characters="0123456789")))
def test_another_table_has_no_tasks(text: str) -> None:
    assert containerd.parse_tasks(text) == {}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("containerd") / "lab", runner=RunnerKind.KUBELET) as lab:
        yield lab


REAL = pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")


@pytest.mark.root
@REAL
def test_it_starts_and_has_no_tasks(lab: Lab) -> None:
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(lab, NODE)
    assert snapshotter in ("overlayfs", "native")
    assert not lab.exists(NODE, "/var/lib/overlay-trial")
    lab.write(NODE, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode())
    containerd.start(lab, NODE)
    assert containerd.task_pids(lab, NODE) == {}
    assert containerd.version(lab, NODE)[0].isdigit()
    lab.stop(NODE, containerd.PROCESS)


@pytest.mark.root
@REAL
def test_one_that_ends_is_told_of_with_its_last_words(lab: Lab) -> None:
    lab.write("bootstrap", containerd.CONFIG_PATH, b"this is no configuration")
    with pytest.raises(LabError) as refused:
        containerd.start(lab, "bootstrap")
    assert refused.value.code == "UMB842"
    assert "containerd on bootstrap ended with 1" in refused.value.what
    assert refused.value.remedy.endswith("logs/bootstrap/containerd.log")
