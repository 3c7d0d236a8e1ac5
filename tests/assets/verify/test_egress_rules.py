"""C1 to C4: kube-apiserver's files, and that both ends mean the same socket and protocol."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.verify_subjects import NAMES, failures, findings, subject

from umbilical.assets.spec import Mode
from umbilical.assets.verify.egress_rules import EGRESS_RULES
from umbilical.checks.check import Outcome

Change = Callable[[Any], None]


def selection(value: Any, name: str) -> Any:
    return next(found for found in value["egressSelections"] if found["name"] == name)


def cluster(value: Any) -> Any:
    return selection(value, "cluster")["connection"]


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in EGRESS_RULES] == ["C1", "C2", "C3", "C4"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "also"),
    [
        (lambda value: value.update(apiVersion="apiserver.k8s.io/v1"), set()),
        (lambda value: value.update(kind="KubeAPIServerConfig"), set()),
        (lambda value: value.pop("kind"), set()),
        (lambda value: value.update(extra=1), set()),
        (lambda value: value["egressSelections"].pop(), set()),
        (lambda value: value["egressSelections"].append({"name": "master", "connection": {}}), set()),
        (lambda value: value["egressSelections"].append(selection(value, "etcd")), set()),
        (lambda value: value["egressSelections"].append("x"), set()),
        (lambda value: value.update(egressSelections="x"), {"C3", "C4"}),
        (lambda value: selection(value, "cluster").update(name="Cluster"), {"C3", "C4"}),
        (lambda value: selection(value, "etcd").update(note="x"), set()),
        (lambda value: selection(value, "etcd").update(connection=None), set()),
        (lambda value: selection(value, "etcd")["connection"].update(proxyProtocol="GRPC"), set()),
        (lambda value: selection(value, "etcd")["connection"].update(transport={}), set()),
        (lambda value: selection(value, "controlplane")["connection"].update(proxyProtocol="direct"), set()),
        (lambda value: cluster(value).update(proxyProtocol="Direct"), {"C4"}),
        (lambda value: cluster(value).update(extra="x"), set()),
        (lambda value: cluster(value)["transport"].update(tcp={"url": "https://x"}), set()),
        (lambda value: cluster(value)["transport"]["uds"].update(udsName="relative"), {"C3"}),
        (lambda value: cluster(value)["transport"]["uds"].update(extra=1), set()),
        (lambda value: cluster(value).pop("transport"), {"C3"}),
    ],
)
def test_an_egress_selector_that_kube_apiserver_would_refuse_fails(name: str, change: Change, also: set[str]) -> None:
    assert failures(subject(name).edited("egress", change).content) == {"C1", *also}


def test_the_protocol_of_the_cluster_follows_the_mode() -> None:
    assert cluster(subject("patched").value("egress"))["proxyProtocol"] == "GRPC"
    assert cluster(subject("seed").value("egress"))["proxyProtocol"] == "HTTPConnect"


@pytest.mark.parametrize(("name", "mode"), [("patched", Mode.HTTP_CONNECT), ("seed", Mode.GRPC)])
def test_another_mode_than_the_one_asked_for_fails(name: str, mode: Mode) -> None:
    assert failures(subject(name).content, mode=mode) == {"C1", "C4"}


@pytest.mark.parametrize("role", ["egress", "override", "server_pod", "agent_secret", "agent_daemon_set", "namespace"])
def test_a_manifest_that_is_no_yaml_fails(role: str) -> None:
    assert failures(subject("patched").with_text(role, "a: [").content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(apiVersion="v1"),
        lambda value: value.pop("apiVersion"),
        lambda value: value.update(egressSelectorConfiguration={}),
        lambda value: value["apiServerArguments"].update({"audit-log-path": ["-"]}),
        lambda value: value.pop("apiServerArguments"),
        lambda value: value["apiServerArguments"].update(
            {"egress-selector-config-file": "/etc/kubernetes/config/e.yaml"}
        ),
        lambda value: value["apiServerArguments"]["egress-selector-config-file"].append("/x"),
        lambda value: value["apiServerArguments"].update(
            {"egress-selector-config-file": ["/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"]}
        ),
        lambda value: value["apiServerArguments"].update(
            {"egress-selector-config-file": ["/etc/kubernetes/config/other.yaml"]}
        ),
    ],
)
def test_an_override_that_does_not_reach_kube_apiserver_fails(name: str, change: Change) -> None:
    assert failures(subject(name).edited("override", change).content) == {"C2"}


def test_an_override_without_a_kind_is_allowed() -> None:
    def bare(value: Any) -> None:
        del value["apiVersion"], value["kind"]

    assert not failures(subject("patched").edited("override", bare).content)


def test_an_override_that_go_templates_would_run_fails() -> None:
    patched = subject("patched")
    assert failures(patched.with_text("override", patched.text("override") + "# {{ .X }}\n").content) == {"C2"}


def uds(path: str) -> Change:
    return lambda value: cluster(value)["transport"]["uds"].update(udsName=path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    [
        "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket",
        "/etc/kubernetes/config/other.socket",
        "/etc/kubernetes/config/below/konnectivity-server.socket",
        "/etc/kubernetes/config/../config/konnectivity-server.socket",
    ],
)
def test_a_socket_that_is_not_the_servers_fails(name: str, path: str) -> None:
    assert failures(subject(name).edited("egress", uds(path)).content) == {"C3"}


def flag(name: str, value: str) -> Change:
    def change(manifest: Any) -> None:
        args = manifest["spec"]["containers"][0]["args"]
        args[:] = [f"{name}={value}" if word.startswith(f"{name}=") else word for word in args]

    return change


def socket_mount(value: Any) -> Any:
    mounts = value["spec"]["containers"][0]["volumeMounts"]
    return next(mount for mount in mounts if mount["mountPath"].startswith("/etc/kubernetes"))


def socket_volume(value: Any) -> Any:
    name = socket_mount(value)["name"]
    return next(volume for volume in value["spec"]["volumes"] if volume["name"] == name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        flag("--uds-name", "/etc/kubernetes/config/konnectivity-server.socket"),
        flag("--uds-name", "/etc/kubernetes/bootstrap-configs/other.socket"),
        flag("--uds-name", "/etc/kubernetes/bootstrap-configs/../x.socket"),
        lambda value: socket_mount(value).update(readOnly=True),
        lambda value: socket_mount(value).update(mountPath="/elsewhere"),
        lambda value: socket_mount(value).update(name="nothing"),
        lambda value: socket_volume(value)["hostPath"].update(path="/etc/kubernetes/config"),
        lambda value: socket_volume(value)["hostPath"].update(type="File"),
        lambda value: socket_volume(value).update(hostPath=None, emptyDir={}),
    ],
)
def test_a_server_that_listens_elsewhere_fails(name: str, change: Change) -> None:
    assert failures(subject(name).edited("server_pod", change).content) == {"C3"}


@pytest.mark.parametrize("name", NAMES)
def test_a_server_of_the_other_protocol_fails(name: str) -> None:
    other = "grpc" if name == "seed" else "http-connect"
    assert failures(subject(name).edited("server_pod", flag("--mode", other)).content) == {"C1", "C4"}


def test_a_mode_that_does_not_exist_fails() -> None:
    assert failures(subject("patched").edited("server_pod", flag("--mode", "quic")).content) == {"C4"}


def test_what_needs_a_missing_file_is_skipped_with_its_name() -> None:
    found = findings(subject("patched").without("egress").content)
    assert {found[name].outcome for name in ("C1", "C3", "C4")} == {Outcome.SKIPPED}
    assert subject("patched").names.egress in found["C1"].evidence
