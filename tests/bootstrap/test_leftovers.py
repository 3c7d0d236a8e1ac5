"""What a tunnel may leave: objects, flags of API servers, files on the node."""

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.object_store import ObjectStore, thing, with_client
from tests.support.scripted_api import status_answer
from tests.support.ssh_daemon import PROGRAMS, ssh_daemon

from umbilical.bootstrap.node_access import PATHS, CleanedFile, FileState, clean_node
from umbilical.bootstrap.teardown import EgressLeft, egress_left
from umbilical.bootstrap.teardown_targets import CONDITIONS, TeardownTarget, leftovers, why_terminating
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, SECRET
from umbilical.fault import BootstrapError
from umbilical.host.commands import CommandResult, LocalRunner

SECRET_TARGET = TeardownTarget(SECRET, "certs", "tunnel", "s", is_going=True)
AGENTS = TeardownTarget(DAEMON_SET, "agent", "tunnel", "d", is_going=True)
PLACE = TeardownTarget(NAMESPACE, "tunnel", None, "n", is_going=True)


def left(store: ObjectStore, folder: Path, *targets: TeardownTarget) -> dict[str, str]:
    return with_client(store, folder, lambda client: leftovers(client, targets))


def condition(name: str, status: str = "True") -> dict[str, str]:
    return {"type": name, "status": status, "message": f"message of {name}"}


def test_nothing_is_left_of_what_is_gone_or_taken_by_another_and_of_the_rest_what_holds_it(tmp_path: Path) -> None:
    path, name = SECRET.path("tunnel", "certs"), "Secret tunnel/certs"
    assert left(ObjectStore(), tmp_path, SECRET_TARGET, AGENTS, PLACE) == {}
    for store, told in (
        (ObjectStore({path: thing("another")}), {}),
        (ObjectStore({path: thing("s", finalizers=["a/b", "c"])}), {name: "metadata.finalizers: a/b, c"}),
        (ObjectStore({path: thing("s")}), {name: "being deleted"}),
        (
            ObjectStore(faults={("GET", path): status_answer(403, "", "not you")}),
            {name: "could not be read: not you"},
        ),
    ):
        assert left(store, tmp_path, SECRET_TARGET) == told


def test_pods_of_the_agents_are_leftovers_until_they_end(tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/tunnel/pods"
    store = ObjectStore(
        {
            f"{pods}/a": thing("1", name="agent-a", ownerReferences=[{"uid": "d"}]),
            f"{pods}/b": thing("2", name="other", ownerReferences=[{"uid": "x"}]),
        }
    )
    assert left(store, tmp_path, AGENTS) == {"Pod tunnel/agent-a": "ending"}
    store.faults["GET", pods] = status_answer(403, "Forbidden")
    assert left(store, tmp_path, AGENTS) == {}


def test_each_condition_that_holds_a_namespace_is_told_and_no_other() -> None:
    for name in CONDITIONS:
        told = why_terminating({"status": {"conditions": [condition(name), condition("Other")]}})
        assert f"{name}: message of {name}" in told
        assert "Other" not in told


def test_a_condition_that_does_not_hold_is_not_told() -> None:
    namespace = {
        "metadata": {"finalizers": ["example.test/hold"]},
        "status": {"conditions": [condition("NamespaceContentRemaining", "False")]},
        "spec": {"finalizers": ["kubernetes"]},
    }
    assert why_terminating(namespace) == "metadata.finalizers: example.test/hold"


def test_a_namespace_that_nobody_works_on_is_told() -> None:
    told = why_terminating({"spec": {"finalizers": ["kubernetes"]}})
    assert told.startswith("spec.finalizers: kubernetes; kube-controller-manager")


@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), st.dictionaries(st.text(), st.text()) | st.text())
)
def test_an_odd_namespace_is_no_crash(namespace: dict[str, Any]) -> None:
    assert why_terminating(namespace)


OPERATOR = "/apis/operator.openshift.io/v1/kubeapiservers/cluster"
CONFIG_MAPS = "/api/v1/namespaces/openshift-kube-apiserver/configmaps"
PODS = "/api/v1/namespaces/kube-system/pods"
OPENSHIFT_PODS = "/api/v1/namespaces/openshift-kube-apiserver/pods"
ARGUMENTS = {"apiServerArguments": {"egress-selector-config-file": ["/etc/e.yaml"]}}


def egress(store: ObjectStore, folder: Path) -> EgressLeft:
    return with_client(store, folder, egress_left)


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "kas"}, "spec": {"containers": [{"name": "x"}, container]}}


def test_a_cluster_without_it_has_nothing_left_and_pods_are_found_by_their_labels(tmp_path: Path) -> None:
    store = ObjectStore({f"{PODS}/kas": pod(command=["kube-apiserver", "--v=2"])})
    assert egress(store, tmp_path) == EgressLeft()
    selectors = {request.query["labelSelector"] for request in store.requests if request.path.endswith("/pods")}
    assert selectors == {"component=kube-apiserver", "app=openshift-kube-apiserver"}


def test_a_command_line_is_read_word_by_word(tmp_path: Path) -> None:
    for container in (
        {"command": ["kube-apiserver", "--egress-selector-config-file=/e"]},
        {"args": ["--egress-selector-config-file", "/e"]},
        {"args": ["exec kube-apiserver --v=2 --egress-selector-config-file=/e"]},
    ):
        store = ObjectStore({f"{PODS}/kas": pod(**container), f"{OPENSHIFT_PODS}/kas": pod(args=None)})
        assert egress(store, tmp_path).places == ["Pod kube-system/kas"]


@pytest.mark.parametrize("part", ["observedConfig", "unsupportedConfigOverrides"])
def test_the_operators_object_is_looked_at(part: str, tmp_path: Path) -> None:
    store = ObjectStore({OPERATOR: {"spec": {part: ARGUMENTS}}})
    assert egress(store, tmp_path).places == [f"kubeapiservers.operator.openshift.io/cluster spec.{part}"]


def test_the_configurations_of_running_kube_apiservers_are_looked_at(tmp_path: Path) -> None:
    store = ObjectStore(
        {
            OPERATOR: {"status": {"nodeStatuses": [{"currentRevision": 7}, {"currentRevision": 8}, {}]}},
            f"{CONFIG_MAPS}/config": {"data": {"config.yaml": "{}"}},
            f"{CONFIG_MAPS}/config-7": {"data": {"config.yaml": json.dumps(ARGUMENTS)}},
            f"{CONFIG_MAPS}/config-8": {"data": {"config.yaml": "apiServerArguments: [\x00"}},
        }
    )
    assert egress(store, tmp_path).places == ["ConfigMap openshift-kube-apiserver/config-7"]
    yaml_text = "apiServerArguments:\n  egress-selector-config-file: [/e]\n"
    store.objects[f"{CONFIG_MAPS}/config-8"] = {"data": {"config.yaml": yaml_text}}
    assert len(egress(store, tmp_path).places) == 2


def test_what_may_not_be_looked_at_is_told_and_the_rest_is(tmp_path: Path) -> None:
    store = ObjectStore(
        {f"{PODS}/kas": pod(args=["--egress-selector-config-file=/e"])},
        {("GET", OPERATOR): status_answer(403, "Forbidden", "no operators for you")},
    )
    result = egress(store, tmp_path)
    assert result.places == ["Pod kube-system/kas"]
    assert set(result.refusals) == {"no operators for you"}


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
    def __init__(self, done: CommandResult) -> None:
        self._done = done

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        return self._done


def test_a_file_that_cannot_be_removed_is_told_with_the_reason() -> None:
    done = CommandResult(0, "failed\t/etc/a\tOperation not permitted\nnoise\nremoved\t/etc/b\t\n", "")
    assert clean_node(Told(done)) == [
        CleanedFile("/etc/a", FileState.FAILED, "Operation not permitted"),
        CleanedFile("/etc/b", FileState.REMOVED),
    ]


def test_a_machine_that_does_not_let_us_is_told() -> None:
    for stderr in ("sudo: a password is required\n", ""):
        with pytest.raises(BootstrapError) as caught:
            clean_node(Told(CommandResult(1, "", stderr)))
        assert caught.value.code == "UMB610"
        assert caught.value.why == (stderr.strip() or "exit status 1")


@pytest.mark.root
def test_only_root_cleans_a_real_machine() -> None:
    """Who may not look into a directory would report that no keys are there."""

    class Nobody:
        def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
            drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            return LocalRunner().run([*drop, *command], timeout_seconds, stdin)

    with pytest.raises(BootstrapError, match="root is needed"):
        clean_node(Nobody(), dry_run=True)
