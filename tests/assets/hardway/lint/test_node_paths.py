"""What is read on a node, and who writes it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.node_paths import is_known, missing_paths, static_pods, written_paths
from umbilical.ignition.config import Config, config_of
from umbilical.ignition.data_url import format_data_url

SECRETS = {"name": "secrets", "mountPath": "/etc/kubernetes/secrets"}
VOLUME = {"name": "secrets", "hostPath": {"path": "/etc/kubernetes/bootstrap-secrets", "type": "Directory"}}


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


def test_a_flags_file_is_followed_through_its_mount_to_the_node() -> None:
    text = pod("--cert-file=/etc/kubernetes/secrets/a.crt")
    assert missing(text, "/etc/kubernetes/bootstrap-secrets/a.crt") == []
    assert missing(text, "/etc/kubernetes/bootstrap-secrets/b.crt") == ["/etc/kubernetes/bootstrap-secrets/a.crt"]


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
    assert "--kubeconfig wants /etc/kubernetes/x, which no mount covers" in found.words


def test_the_images_own_files_are_not_the_nodes() -> None:
    text = pod("--templates=/usr/share/x", "--prefix=/registry", command=["/usr/bin/etcd"])
    assert missing(text, "/etc/kubernetes/bootstrap-secrets/x") == []


def test_a_url_is_no_path() -> None:
    assert missing(pod("--etcd-servers=https://localhost:2379"), "/etc/kubernetes/bootstrap-secrets/x") == []


@pytest.mark.parametrize(("kind", "is_made"), [("DirectoryOrCreate", True), ("Directory", False), (None, False)])
def test_a_volume_is_there_or_makes_itself(kind: str | None, is_made: bool) -> None:
    volume = {"name": "v", "hostPath": {"path": "/data", **({"type": kind} if kind else {})}}
    text = json.dumps({"spec": {"volumes": [volume]}})
    assert missing(text) == ([] if is_made else ["/data"])
    assert missing(text, directories=[{"path": "/data"}]) == []


def test_a_socket_that_the_program_makes_need_not_be_there() -> None:
    assert missing(pod("--uds-name=/etc/kubernetes/secrets/s"), "/etc/kubernetes/bootstrap-secrets/x") == []


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


def test_directories_above_a_file_are_written_with_it() -> None:
    assert {"/a/b/c", "/a/b", "/a", "/etc/systemd/system/x.service"} <= written_paths(
        config({"/a/b/c": ""}, {"x.service": ""})
    )


def test_what_the_system_has_is_known_and_no_more() -> None:
    assert is_known("/usr/bin/kubelet")
    assert is_known("/lib/modules")
    assert not is_known("/usr/binary")
    assert not is_known("/opt/openshift/bootkube.sh")


def test_a_pod_that_is_no_yaml_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="not YAML"):
        list(static_pods(config({"/etc/kubernetes/manifests/a.yaml": "{"})))


def test_files_that_a_kubelet_passes_over_are_passed_over() -> None:
    assert list(static_pods(config({"/etc/kubernetes/manifests/.a.yaml": "{"}))) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just("--a=/etc/kubernetes/x"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "containers",
                    "volumes",
                    "hostPath",
                    "path",
                    "type",
                    "name",
                    "args",
                    "env",
                    "value",
                    "volumeMounts",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_no_pod_is_too_strange(value: Any) -> None:
    for wanted in missing_paths(config({"/etc/kubernetes/manifests/a.yaml": json.dumps(value)})):
        assert wanted.path.startswith("/") or wanted.path
