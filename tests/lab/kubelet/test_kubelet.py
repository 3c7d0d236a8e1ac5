"""What a kubelet is given (configuration, network, programs) and what it says of its pods."""

import contextlib
import os
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab.kubelet import containerd, kubelet_config, node_runtime
from umbilical.lab.kubelet.node_runtime import CNI_PLUGINS, check_needs, find_cni
from umbilical.lab.kubelet.runner import find_logs, parse_answer, parse_log, read_pods
from umbilical.lab.lab import Lab
from umbilical.lab.runner import PodStatus
from umbilical.lab.state import LabDirectory


def read(*, is_registered: bool) -> dict[str, Any]:
    content = kubelet_config.configuration("umbilical-lab/node", ["10.91.0.11"], is_registered=is_registered)
    document = yaml.safe_load(content)
    assert isinstance(document, dict)
    return document


def test_it_listens_on_every_family_that_the_node_has() -> None:
    for addresses, everywhere in (
        (["10.91.0.11"], "0.0.0.0"),
        (["fd91::11"], "::"),
        (["10.91.0.11", "fd91::11"], "::"),
    ):
        content = kubelet_config.configuration("umbilical-lab/node", addresses, is_registered=True)
        assert yaml.safe_load(content)["address"] == everywhere


def test_both_watch_the_manifests_and_use_the_nodes_own_group_and_containerd() -> None:
    for is_registered in (True, False):
        document = read(is_registered=is_registered)
        assert document["staticPodPath"] == "/etc/kubernetes/manifests"
        assert document["cgroupRoot"] == "/umbilical-lab/node"
        assert document["containerRuntimeEndpoint"] == "unix:///run/containerd/containerd.sock"
        assert document["authentication"]["anonymous"] == {"enabled": False}


def test_an_api_is_asked_who_may_do_what_where_there_is_one() -> None:
    document = read(is_registered=False)
    assert document["authentication"]["webhook"] == {"enabled": False}
    assert document["authorization"] == {"mode": "AlwaysAllow"}
    assert "tlsCertFile" not in document
    document = read(is_registered=True)
    assert document["authentication"]["webhook"] == {"enabled": True}
    assert document["authentication"]["x509"] == {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}
    assert document["authorization"] == {"mode": "Webhook"}
    assert document["tlsCertFile"] == "/etc/kubernetes/pki/kubelet.crt"


def test_a_machines_drop_in_says_what_is_the_machines_and_leaves_the_rest_to_the_node() -> None:
    document = yaml.safe_load(kubelet_config.machine_drop_in("umbilical-lab/node"))
    assert (document["kind"], document["cgroupRoot"]) == ("KubeletConfiguration", "/umbilical-lab/node")
    assert document["cgroupDriver"] == "cgroupfs"
    # Merged into the defaults, an empty table would leave them as they are.
    assert set(document["evictionHard"].values()) == {"0%"}
    assert not {"staticPodPath", "authentication", "authorization", "clusterDNS"} & set(document)


def test_a_kubeconfig_is_a_flag_of_registered_nodes_alone() -> None:
    alone = kubelet_config.command("bootstrap", ["10.91.0.10"], None)
    joined = kubelet_config.command("master-0", ["10.91.0.11", "fd91::11"], "/etc/kubernetes/kubelet.kubeconfig")
    assert not any(flag.startswith("--kubeconfig") for flag in alone)
    assert "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig" in joined
    assert "--node-ip=10.91.0.11,fd91::11" in joined
    assert "--hostname-override=master-0" in joined


def programs(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(node_runtime, "find_cni", lambda: tmp_path)
    return programs(tmp_path, ("containerd", "ctr", "runc"))


def test_who_has_all_is_let_through_and_a_kubelet_is_needed_too(complete: Path) -> None:
    check_needs(["kubelet"], is_root=True, path=str(complete))
    with pytest.raises(LabError, match="UMB841") as refused:
        check_needs(["etcd"], is_root=True, path=str(complete))
    assert refused.value.remedy == "make peers GROUP=kubernetes"


def test_missing_programs_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_runtime, "find_cni", lambda: None)
    with pytest.raises(LabError, match="UMB841") as refused:
        check_needs(["kubelet"], is_root=True, path=str(programs(tmp_path, ("runc",))))
    assert "the CNI plugins" in refused.value.what
    assert refused.value.remedy == ("apt-get install --no-install-recommends containerd containernetworking-plugins")
    with pytest.raises(LabError, match=r"(?s)UMB840.*next: .*--runner process"):
        check_needs([], is_root=False, path=str(tmp_path))


def test_a_directory_with_some_of_the_plugins_is_passed_over(tmp_path: Path) -> None:
    some, every = tmp_path / "some", tmp_path / "every"
    some.mkdir()
    every.mkdir()
    programs(some, CNI_PLUGINS[:-1])
    assert find_cni([some]) is None
    assert find_cni([some, programs(every, CNI_PLUGINS)]) == every


ADDRESS = "10.91.0.11"


def listed(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pod = {
        "metadata": {"namespace": "lab", "name": "talker-x7k2p"},
        "spec": {"containers": [{"name": "talker", "image": "localhost/x:lab"}], **spec},
        "status": status,
    }
    return {"kind": "PodList", "items": [pod]}


def only(document: dict[str, Any], pids: dict[str, int] | None = None) -> PodStatus:
    (pod,) = read_pods("master-0", ADDRESS, document, pids or {})
    return pod


def test_an_answer_is_a_head_and_a_list_or_asked_for_again() -> None:
    assert parse_answer(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"items": []}') == {"items": []}
    for answer in (
        *(b"", b"HTTP/1.0 200 OK\r\n", b'HTTP/1.0 200 OK\r\n\r\n{"items": [', b"HTTP/1.0 200 OK\r\n\r\n[]"),
        *(b"HTTP/1.0 503 Service Unavailable\r\n\r\n{}", b"\xff\r\n\r\n{}"),
    ):
        with pytest.raises(NotYet):
            parse_answer(answer)


@given(st.binary(max_size=100))
def test_any_answer_is_read_or_asked_for_again(answer: bytes) -> None:
    with contextlib.suppress(NotYet):
        parse_answer(b"HTTP/1.0 200 OK\r\n\r\n" + answer)


def test_a_running_container_has_a_pid_and_is_ready_when_the_kubelet_says_so() -> None:
    status = {"name": "talker", "containerID": "containerd://abc", "ready": True, "restartCount": 2}
    pod = only(listed({"podIP": "10.92.0.2", "containerStatuses": [status]}), {"abc": 77})
    assert (pod.namespace, pod.name, pod.node, pod.address) == ("lab", "talker-x7k2p", "master-0", "10.92.0.2")
    (container,) = pod.containers
    assert (container.pid, container.restarts, container.is_ready, container.last_exit) == (77, 2, True, None)
    assert pod.is_ready


def test_a_container_without_a_process_is_not_ready_whatever_was_last_heard() -> None:
    status = {"name": "talker", "containerID": "containerd://abc", "ready": True}
    pod = only(listed({"containerStatuses": [status]}))
    assert not pod.is_running
    assert not pod.is_ready
    pod = only(listed({}))
    assert [container.name for container in pod.containers] == ["talker"]
    assert pod.address == ""
    assert only(listed({}, hostNetwork=True)).address == ADDRESS
    assert read_pods("master-0", ADDRESS, {"items": None}, {}) == []


def test_lines_that_were_cut_are_joined_and_an_exit_by_a_signal_is_negative() -> None:
    for code, seen in ((137, -9), (143, -15), (1, 1), (0, 0), (255, 255), (128, 128)):
        status = {"name": "talker", "lastState": {"terminated": {"exitCode": code}}}
        assert only(listed({"containerStatuses": [status]})).containers[0].last_exit == seen
    content = (
        b"2026-11-15T17:27:50.1Z stdout F one\n"
        b"2026-11-15T17:27:50.2Z stderr P tw\n"
        b"2026-11-15T17:27:50.3Z stderr F o\n"
        b"2026-11-15T17:27:50.4Z stdout F \n"
        b"2026-11-15T17:27:50.5Z stdout F th"
    )
    assert parse_log(content) == "one\ntwo\n\nth\n"


@given(st.binary(max_size=200))
def test_any_bytes_can_be_in_a_log_file(content: bytes) -> None:
    assert isinstance(parse_log(content), str)


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20), max_size=5))
def test_what_was_printed_is_what_is_read(lines: list[str]) -> None:
    wrapped = b"".join(b"2026-11-15T17:27:50Z stdout F " + line.encode() + b"\n" for line in lines)
    assert parse_log(wrapped) == "".join(f"{line}\n" for line in lines)


def log_file(logs: Path, folder: str, name: str, seconds: int) -> Path:
    path = logs / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(logs / folder, (seconds, seconds))
    return path


def test_log_files_are_found_oldest_first(tmp_path: Path) -> None:
    old = log_file(tmp_path, "lab_talker-a1b2c_uid-9", "talker/0.log", 100)
    restarted = [
        log_file(tmp_path, "lab_talker-x7k2p_uid-1", f"talker/{name}", 200)
        for name in ("0.log", "2.log.20261115-120000", "2.log", "10.log")
    ]
    log_file(tmp_path, "lab_talker-x7k2p_uid-1", "other/0.log", 200)
    log_file(tmp_path, "lab_talker-x7k2p_uid-1", "talker/2.log.20261115-110000.gz", 200)
    log_file(tmp_path, "lab_talkative_uid-2", "talker/0.log", 200)
    log_file(tmp_path, "other_talker-x7k2p_uid-3", "talker/0.log", 200)
    assert find_logs(tmp_path, "lab", "talker", "talker") == [old, *restarted]
    assert find_logs(tmp_path, "lab", "talker-x7k2p", "talker") == restarted
    assert find_logs(tmp_path / "nowhere", "lab", "talker", "talker") == []


def test_tasks_have_a_pid_while_they_run_and_configuration_fits_the_machine() -> None:
    shown = "TASK    PID    STATUS    \nabc     286    RUNNING\ndef     0      STOPPED\n"
    assert containerd.parse_tasks(shown) == {"abc": 286}
    document = tomllib.loads(containerd.config("native", Path("/usr/lib/cni")))
    assert document["root"] == "/var/lib/containerd"
    assert document["grpc"]["address"] == containerd.SOCKET
    runtime = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert runtime["sandbox_image"] == "localhost/pause:1"
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["disable_apparmor"] is True
    assert runtime["containerd"]["snapshotter"] == "native"
    assert runtime["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"}


@given(st.text(st.characters(codec="utf-8", exclude_characters="0123456789")))
def test_another_table_has_no_tasks(text: str) -> None:
    assert containerd.parse_tasks(text) == {}


class _Lab:
    """As much of a lab as a complaint about containerd needs."""

    def __init__(self, folder: Path, log: str) -> None:
        self.directory = LabDirectory(folder)
        self._log = log

    def log(self, node: str, name: str) -> str:
        return self._log


def test_a_plugin_that_was_not_loaded_is_reported_with_its_reason(tmp_path: Path) -> None:
    failed = 'msg="failed to load plugin io.containerd.grpc.v1.cri" error="failed to create CRI service: '
    lines = [
        'msg="failed to load plugin io.containerd.snapshotter.v1.zfs" error="path must be a zfs filesystem"',
        f'{failed}cni conf monitor: failed to create fsnotify watcher: too many open files"',
    ]
    told = containerd._without_plugin(cast(Lab, _Lab(tmp_path, "\n".join(lines))), "master-0")
    assert (told.code, told.why) == ("UMB842", lines[1])
    assert "fs.inotify.max_user_instances" in told.remedy
    other = containerd._without_plugin(cast(Lab, _Lab(tmp_path, f'{failed}no snapshotter"')), "master-0")
    assert other.remedy.endswith("logs/master-0/containerd.log")
