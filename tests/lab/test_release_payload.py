"""What bootkube.sh asks podman for is answered as the release payload would, by a program that says who it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab_config import lab_config

from umbilical.assets.names import OWN
from umbilical.lab import release_payload
from umbilical.lab.ignition_applier import apply_config
from umbilical.lab.release_payload import NOT_KNOWN, main

EGRESS_FLAG = "--egress-selector-config-file=/etc/kubernetes/config/egress-selector-config.yaml"
OVERRIDE = {
    "apiVersion": "kubecontrolplane.config.openshift.io/v1",
    "kind": "KubeAPIServerConfig",
    "apiServerArguments": {"egress-selector-config-file": ["/etc/kubernetes/config/egress-selector-config.yaml"]},
}
# Plays kubectl: what is in `ready` decides whether the API answers, `refused` which manifests it does not take yet.
KUBECTL = r"""#!/bin/bash
echo "$*" >>FOLDER/calls
case "$*" in
    *--raw=/readyz*) [ -e FOLDER/ready ] && [ -e FOLDER/node/etc/kubernetes/manifests/kube-apiserver.yaml ] ;;
    *"get configmap lab-control-plane"*) [ -e FOLDER/mark ] || { touch FOLDER/mark; exit 1; } ;;
    *create*)
        name=${!#}
        name=${name##*/}
        if [ -e FOLDER/refused/"${name}" ]; then rm FOLDER/refused/"${name}"; echo "not yet" >&2; exit 1; fi
        if [ -e FOLDER/existing/"${name}" ]; then echo "Error (AlreadyExists): it exists" >&2; exit 1; fi ;;
esac
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bootstrap node's root with the lab's config on it, and a kubectl that a test leads."""
    root = tmp_path / "node"
    root.mkdir()
    apply_config(lab_config(), root)
    for name in ("INSTALL", "MANIFESTS", "PAYLOAD", "IMAGES_FILE"):
        monkeypatch.setattr(release_payload, name, f"{root}{getattr(release_payload, name)}")
    monkeypatch.setattr(release_payload, "POLL_SECONDS", 0.01)
    for folder in ("ready", "refused", "existing", "bin", "node/etc/kubernetes/manifests"):
        (tmp_path / folder).mkdir()
    for folder in ("bootstrap-manifests", "manifests"):
        (root / "opt/openshift" / folder).mkdir(exist_ok=True)
    (tmp_path / "bin/kubectl").write_text(KUBECTL.replace("FOLDER", str(tmp_path)))
    (tmp_path / "bin/kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return root


def run(*words: str) -> int:
    return main(["run", "--quiet", "--net=host", "--rm", *words])


def render(component: str, *options: str) -> int:
    return run("--name", "x", "image", "render", f"--asset-output-dir=/assets/{component}-bootstrap", *options)


def pod(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return value


def test_the_tunnel_s_image_is_named_and_others_by_their_own_name(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("release@sha256:00", "image", "apiserver-network-proxy") == 0
    assert run("release@sha256:00", "image", "etcd") == 0
    assert capsys.readouterr().out.split() == ["localhost/umbilical:lab", "localhost/etcd:lab"]


def test_a_component_with_a_static_pod_is_rendered_with_it_and_others_without(node: Path) -> None:
    assert render("etcd") == render("mco") == 0

    install = node / "opt/openshift"
    assert pod(install / "etcd-bootstrap/bootstrap-manifests/etcd.yaml")["metadata"]["name"] == "etcd"
    assert list((install / "mco-bootstrap/bootstrap-manifests").iterdir()) == []
    assert pod(install / "mco-bootstrap/manifests/mco-rendered.yaml")["kind"] == "ConfigMap"


def render_kube_apiserver(node: Path, *options: str) -> dict[str, Any]:
    config = "--config-output-file=/assets/kube-apiserver-bootstrap/config"
    assert render("kube-apiserver", config, *options) == 0
    return pod(node / "opt/openshift/kube-apiserver-bootstrap/bootstrap-manifests/kube-apiserver.yaml")


def test_kube_apiserver_gets_the_override_s_flag_and_the_directory_that_it_names(node: Path) -> None:
    path = node / OWN.override.lstrip("/")
    path.parent.mkdir()
    path.write_text(json.dumps(OVERRIDE))
    made = render_kube_apiserver(node, f"--config-override-files={OWN.override_in_render_container}")

    (container,) = made["spec"]["containers"]
    assert EGRESS_FLAG in [*container["command"], *container.get("args", [])]
    assert {"name": "config", "mountPath": "/etc/kubernetes/config", "readOnly": True} in container["volumeMounts"]
    host = {"path": "/etc/kubernetes/bootstrap-configs", "type": "Directory"}
    assert {"name": "config", "hostPath": host} in made["spec"]["volumes"]
    written = json.loads((node / "opt/openshift/kube-apiserver-bootstrap/config").read_bytes())
    assert written == OVERRIDE


def test_without_an_override_it_is_the_pod_that_it_was(node: Path) -> None:
    assert render_kube_apiserver(node) == pod(node / "opt/openshift/lab-payload/kube-apiserver.yaml")


def test_an_override_of_another_kind_fails_the_render(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "opt/openshift/wrong.yaml").write_text(json.dumps({**OVERRIDE, "kind": "Wrong"}))
    config = "--config-output-file=/assets/kube-apiserver-bootstrap/config"
    assert render("kube-apiserver", config, "--config-override-files=/assets/wrong.yaml") == 1
    assert "the lab's stand-in" in capsys.readouterr().err


def test_etcd_that_does_not_answer_is_not_healthy(node: Path) -> None:
    assert run("etcd", "etcdctl", "--endpoints=https://localhost:2379", "endpoint", "health") == 1


def test_what_nobody_knows_is_refused_as_podman_refuses(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("busybox", "true") == NOT_KNOWN
    assert "nobody here knows" in capsys.readouterr().err


def start() -> int:
    return run("--name", "cluster-bootstrap", "image", "start", "--tear-down-early=false", "--asset-dir=/assets")


def test_cluster_bootstrap_starts_pods_creates_manifests_waits_and_takes_its_pods_away(
    node: Path, tmp_path: Path
) -> None:
    install, manifests = node / "opt/openshift", node / "etc/kubernetes/manifests"
    for name in ("kube-apiserver.yaml", "kube-scheduler.yaml"):
        (install / "bootstrap-manifests" / name).write_text("kind: Pod\n")
    (manifests / "etcd.yaml").write_text("kind: Pod\n")
    for name in ("a.yaml", "b.yaml", "c.yaml"):
        (install / "manifests" / name).write_text("kind: ConfigMap\n")
    (tmp_path / "refused/a.yaml").touch()
    (tmp_path / "existing/b.yaml").touch()

    assert start() == 0
    assert [path.name for path in manifests.iterdir()] == ["etcd.yaml"], "etcd is not its own"
    created = [call.rsplit("/", 1)[1] for call in (tmp_path / "calls").read_text().splitlines() if " create " in call]
    assert created == ["a.yaml", "b.yaml", "c.yaml", "cluster-config.yaml", "a.yaml"]


def test_a_static_pod_of_somebody_else_is_not_replaced(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "opt/openshift/bootstrap-manifests/etcd.yaml").write_text("kind: Pod\n")
    (node / "etc/kubernetes/manifests/etcd.yaml").write_text("kind: Pod # another\n")
    assert start() == 1
    assert "etcd.yaml exists" in capsys.readouterr().err


def test_an_api_that_never_comes_ends_the_wait(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release_payload, "READY_SECONDS", 0.05)
    (tmp_path / "ready").rmdir()
    assert start() == 1
    assert "the API on this machine is ready" in capsys.readouterr().err
    assert run("--name", "wait-for-ceo", "image", "wait-for-ceo", "--kubeconfig-path=/assets/auth/kubeconfig") == 1
