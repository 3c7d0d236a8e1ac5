"""Nodes as rules read them: units, static pods, programs, paths and names."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Subject, changed, copied, subject
from tests.support.hardway_pki import pods
from tests.support.hardway_pods import inputs, tree

from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.facts import Unreadable
from umbilical.hardway.lint.node_reading import commands, copy_faults, is_known, missing_paths
from umbilical.hardway.lint.node_reading import static_pods as pods_on_node
from umbilical.hardway.lint.pods import ETCD, KUBE_APISERVER, program_pod, programs, static_pods
from umbilical.ignition.config import Config, IgnitionUnit, config_of
from umbilical.ignition.data_url import format_data_url

SECRETS = {"name": "secrets", "mountPath": "/etc/kubernetes/secrets"}
VOLUME = {"name": "secrets", "hostPath": {"path": "/etc/kubernetes/bootstrap-secrets", "type": "Directory"}}
_KEYS = ["spec", "containers", "volumes", "hostPath", "path", "type", "name", "args", "env", "value", "volumeMounts"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just("--a=/etc/kubernetes/x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=20,
)


def unit(contents: str, **dropins: str) -> IgnitionUnit:
    return IgnitionUnit("a.service", contents, True, {f"{name}.conf": text for name, text in dropins.items()})


@pytest.mark.parametrize(
    ("contents", "dropin", "programs"),
    [
        *((f"ExecStartPre={mark}/bin/mkdir /a", "", ["/bin/mkdir"]) for mark in ("-", "@", "+", "!!", ":", "-+")),
        (
            "ExecStartPre=/a\nExecStart=/b\nExecStartPost=/c",
            "[Service]\nExecStart=\nExecStart=/d",
            ["/a", "/b", "/c", "/d"],
        ),
        ("[Exec=x]\n# ExecStart=/a\n;ExecStart=/b\n", "", []),
    ],
)
def test_programs_are_those_of_all_exec_lines_without_marks(contents: str, dropin: str, programs: list[str]) -> None:
    assert [command.program for command in commands(unit(contents, more=dropin))] == programs


def test_quotes_that_no_shell_would_take_are_words_all_the_same() -> None:
    assert commands(unit("ExecStart=/bin/echo it's"))[0].words == ("/bin/echo", "it's")


@given(st.text(), st.text())
def test_no_text_is_too_strange(contents: str, dropin: str) -> None:
    for command in commands(unit(contents, x=dropin)):
        assert command.words
        assert isinstance(command.flags, dict)


def _subject() -> Subject:
    return subject(inputs(ClusterProfile.KUBERNETES).cluster, tree(ClusterProfile.KUBERNETES))


def test_configs_beside_pods_are_none() -> None:
    found = [pod.path for pod in static_pods(_subject().facts())]
    assert "static-pods/bootstrap/kube-apiserver-bootstrap.yaml" in found
    assert "late-static-pods/master-2/etcd.yaml" in found
    assert not [path for path in found if "/config/" in path or path.endswith(".json")]


def test_one_that_is_missing_or_stands_twice_is_told() -> None:
    given = _subject()
    with pytest.raises(Unreadable, match="0 static pods of cluster-version-operator"):
        program_pod(given.facts(), "cluster-version-operator", given.cluster.bootstrap)
    path = "static-pods/bootstrap/etcd-bootstrap.yaml"
    given.write(path.replace("etcd-b", "second-b"), given.assets[path].content)
    with pytest.raises(Unreadable, match="2 static pods of etcd"):
        program_pod(given.facts(), "etcd", given.cluster.bootstrap)


def test_a_path_is_followed_through_its_mount() -> None:
    given = _subject()
    pod = program_pod(given.facts(), "etcd", given.cluster.masters[0])
    assert pod.on_host(pod.flag("key-file")) == "/etc/kubernetes/static-pod-resources/etcd-serving-master-0.key"
    with pytest.raises(Unreadable, match="is not on a hostPath volume"):
        pod.on_host("/elsewhere/file")
    with pytest.raises(Unreadable, match="has no --etcd-prefix"):
        pod.flag("etcd-prefix")


def test_something_that_is_no_pod_is_not_followed() -> None:
    given = _subject()
    given.write("static-pods/bootstrap/etcd-bootstrap.yaml", b"spec: 7\n")
    [odd] = [pod for pod in static_pods(given.facts()) if pod.file == "etcd-bootstrap.yaml"]
    assert odd.spec == {}


def test_a_flag_or_a_file_that_is_missing_is_told() -> None:
    original = everything(ClusterProfile.KUBERNETES)
    member = programs(original.facts(), ETCD)[0]
    with pytest.raises(Unreadable, match="has no --tls-cert-file"):
        member.file("tls-cert-file")
    path = pods(original, "etcd-bootstrap")[0]
    renamed = changed(original, lambda subject: subject.replace(path, "etcd-ca-bundle.crt", "ca.crt"))
    with pytest.raises(Unreadable, match=r"refers to /etc/kubernetes/secrets/ca\.crt"):
        programs(renamed.facts(), ETCD)[0].file("trusted-ca-file")


def test_a_pod_without_containers_runs_nothing() -> None:
    original = everything(ClusterProfile.OPENSHIFT)
    path = pods(original, "kube-apiserver")[0]
    emptied = changed(original, lambda subject: subject.edit(path, lambda pod: pod.update(spec=None)))
    with pytest.raises(Unreadable, match="no static pod runs kube-apiserver"):
        programs(emptied.facts(), KUBE_APISERVER)


def _faults(subject: Subject) -> list[str]:
    facts = subject.facts()
    return [fault for node in subject.cluster.nodes for fault in copy_faults(facts, node)]


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_each_pod_that_changed_on_either_side_is_named(profile: ClusterProfile) -> None:
    paths = [path for path in everything(profile).assets if path.startswith(("static-pods/", "late-static-pods/"))]
    nodes = {node.id for node in everything(profile).cluster.nodes}
    for path in (one for one in paths if one.split("/")[1] in nodes):
        subject = copied(everything(profile))
        subject.write(path, subject.assets[path].content + b"# changed\n")
        (fault,) = _faults(subject)
        assert fault.startswith(f"{path} is not written")


def test_a_pod_in_another_directory_is_not_run() -> None:
    subject = copied(everything(ClusterProfile.KUBERNETES))
    subject.replace("ignition/worker-0.ign", f"{layout.NODE_MANIFESTS}/kube-proxy.yaml", "/etc/x/kube-proxy.yaml")
    (fault,) = _faults(subject)
    assert fault == (
        "static-pods/worker-0/kube-proxy.yaml is not written to /etc/kubernetes/manifests/kube-proxy.yaml"
        " with the same content"
    )


def test_a_pod_that_nobody_has_rendered_is_named() -> None:
    subject = copied(everything(ClusterProfile.OPENSHIFT))
    subject.remove("static-pods/bootstrap/etcd-bootstrap.yaml")
    (fault,) = _faults(subject)
    assert fault.endswith("etcd-bootstrap.yaml is missing")


def config(files: dict[str, str], units: dict[str, str] | None = None, **storage: Any) -> Config:
    entries = [{"path": path, "contents": {"source": format_data_url(text.encode())}} for path, text in files.items()]
    written = [{"name": name, "contents": text} for name, text in (units or {}).items()]
    return config_of(
        {"ignition": {"version": "3.4.0"}, "storage": {"files": entries, **storage}, "systemd": {"units": written}}
    )


def pod(*args: str, **container: Any) -> str:
    one = {"name": "a", "args": list(args), "volumeMounts": [SECRETS], **container}
    return json.dumps({"kind": "Pod", "spec": {"containers": [one], "volumes": [VOLUME]}})


def missing(text: str, *files: str, **storage: Any) -> list[str]:
    laid = {"/etc/kubernetes/manifests/a.yaml": text, **dict.fromkeys(files, "")}
    return [wanted.path for wanted in missing_paths(config(laid, **storage))]


def test_a_pair_with_names_behind_it_is_two_files() -> None:
    text = pod("--tls-sni-cert-key=/etc/kubernetes/secrets/a.crt,/etc/kubernetes/secrets/a.key:localhost,127.0.0.1")
    folder = "/etc/kubernetes/bootstrap-secrets"
    assert missing(text, f"{folder}/a.crt") == [f"{folder}/a.key"]


def test_a_path_that_no_mount_covers_is_missing_whatever_lies_on_the_node() -> None:
    files = {
        "/etc/kubernetes/manifests/a.yaml": pod("--kubeconfig=/etc/kubernetes/x"),
        "/etc/kubernetes/x": "",
        "/etc/kubernetes/bootstrap-secrets/y": "",
    }
    (found,) = missing_paths(config(files))
    assert found.path == "/etc/kubernetes/x"
    assert "--kubeconfig needs /etc/kubernetes/x, which no mount covers" in found.words


@pytest.mark.parametrize(("kind", "is_made"), [("DirectoryOrCreate", True), ("Directory", False), (None, False)])
def test_a_volume_is_there_or_makes_itself(kind: str | None, is_made: bool) -> None:
    volume = {"name": "v", "hostPath": {"path": "/data", **({"type": kind} if kind else {})}}
    text = json.dumps({"spec": {"volumes": [volume]}})
    assert missing(text) == ([] if is_made else ["/data"])
    assert missing(text, directories=[{"path": "/data"}]) == []


def test_probes_and_variables_are_looked_at_too() -> None:
    probe = {"exec": {"command": ["etcdctl", "--cacert=/etc/kubernetes/secrets/ca.crt"]}}
    text = pod(livenessProbe=probe, env=[{"name": "ETCDCTL_KEY", "value": "/etc/kubernetes/secrets/k.key"}])
    folder = "/etc/kubernetes/bootstrap-secrets"
    assert missing(text, f"{folder}/x") == [f"{folder}/ca.crt", f"{folder}/k.key"]


def test_units_want_their_programs_files_and_flags() -> None:
    text = "ExecStart=/opt/run.sh --config=/etc/a.conf\nEnvironmentFile=/etc/b.env\nEnvironmentFile=-/etc/c.env\n"
    found = [wanted.path for wanted in missing_paths(config({}, {"a.service": text}))]
    assert found == ["/opt/run.sh", "/etc/a.conf", "/etc/b.env"]


def test_the_kubelets_configuration_wants_its_files() -> None:
    text = "authentication: {x509: {clientCAFile: /etc/kubernetes/kubelet-ca.crt}}\nstaticPodPath: /pods\n"
    found = [wanted.path for wanted in missing_paths(config({"/etc/kubernetes/kubelet.conf": text}))]
    assert found == ["/etc/kubernetes/kubelet-ca.crt", "/pods"]


def test_what_the_system_has_is_known_and_no_more() -> None:
    assert is_known("/usr/bin/kubelet")
    assert is_known("/lib/modules")
    assert not is_known("/usr/binary")
    assert not is_known("/opt/openshift/bootkube.sh")


def test_a_pod_that_is_no_yaml_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="not YAML"):
        list(pods_on_node(config({"/etc/kubernetes/manifests/a.yaml": "{"})))


def test_files_that_a_kubelet_passes_over_are_passed_over() -> None:
    assert list(pods_on_node(config({"/etc/kubernetes/manifests/.a.yaml": "{"}))) == []


@given(_JSON)
def test_no_pod_is_too_strange(value: Any) -> None:
    for wanted in missing_paths(config({"/etc/kubernetes/manifests/a.yaml": json.dumps(value)})):
        assert wanted.path.startswith("/") or wanted.path
