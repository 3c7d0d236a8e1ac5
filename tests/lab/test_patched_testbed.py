"""The lab's bootstrap.ign, its bootkube.sh and release payload, and the testbed that patches and plays them."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.support.fixture_types import Captured, Patch
from tests.support.ignition_validate import validate
from tests.support.lab_config import lab_config, lab_topology

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.patch.anchors import find_anchors, release_line
from umbilical.bootstrap.patch.config_facts import cluster_facts
from umbilical.cli.main import run as umbilical
from umbilical.fault import LabError
from umbilical.host.commands import syntax_complaint
from umbilical.ignition.config import faults, read_config
from umbilical.lab import release_payload
from umbilical.lab.bootkube_script import CLUSTER_GATHER, RELEASE_IMAGE, SERVICE_RECORD, VERIFY_URLS, bootkube_script
from umbilical.lab.bootstrap_config import IMAGES_FILE, PAYLOAD
from umbilical.lab.ignition_applier import apply_config
from umbilical.lab.kubernetes_testbed import Plane
from umbilical.lab.lab import CompletedCommand, ProcessStatus
from umbilical.lab.release_payload import NOT_KNOWN, main
from umbilical.lab.scenarios import patched_ignition
from umbilical.lab.scenarios.patched_ignition import OC, UNIT, PatchedTestbed
from umbilical.lab.state import LabDirectory
from umbilical.lab.topology import Family, plan_topology
from umbilical.lab.transcript import Transcript
from umbilical.lab.tunnel_parts import UPSTREAM, ScenarioOptions


def test_it_is_a_sound_config_that_says_what_cluster_it_is_of() -> None:
    for family in Family:
        config, topology = read_config(lab_config(family)), lab_topology(family)
        assert faults(config) == []
        facts = cluster_facts(config)
        assert facts.platform == "none"
        assert facts.machine_networks == topology.machine_networks
        assert facts.service_networks == topology.service_networks


def test_static_pods_wait_for_the_script_and_keys_are_for_root_alone() -> None:
    config = read_config(lab_config())
    paths = [file.path for file in config.files]

    assert [path for path in paths if path.startswith("/etc/kubernetes/manifests/")] == []
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    payload = [*(f"{PAYLOAD}/{name}.yaml" for name in names), IMAGES_FILE]
    assert [path for path in paths if path.startswith(f"{PAYLOAD}/")] == payload
    assert [file.path for file in config.files if b"PRIVATE KEY" in file.content() and file.mode != 0o600] == []
    images = config.file(IMAGES_FILE)
    assert images is not None
    assert json.loads(images.content()) == {"apiserver-network-proxy": "localhost/umbilical:lab"}


@pytest.mark.real("ignition-validate")
def test_ignition_itself_takes_it() -> None:
    validate(lab_config())


@pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6])
def test_the_patch_takes_it_and_verify_is_content(family: Family, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "bootstrap.ign").write_bytes(lab_config(family))
    assert (
        umbilical(["bootstrap", "patch", str(tmp_path / "bootstrap.ign"), "--out", str(tmp_path / "patched.ign")]) == 0
    )
    assert "bootkube.sh of 4.18 recognised" in capsys.readouterr().err
    assert umbilical(["bootstrap", "verify", str(tmp_path / "patched.ign")]) == 0
    assert "0 failed" in capsys.readouterr().out


SCRIPTS = {
    "bootkube": bootkube_script(),
    "record": SERVICE_RECORD,
    "release": RELEASE_IMAGE,
    "gather": CLUSTER_GATHER,
    "urls": VERIFY_URLS,
}


def test_bash_takes_the_scripts_with_every_anchor_and_stage() -> None:
    assert [name for name, text in SCRIPTS.items() if syntax_complaint(text.encode()) is not None] == []
    assert len(find_anchors(bootkube_script().split("\n"))) == 6
    assert release_line(bootkube_script()) == "4.18"
    assert "@" not in bootkube_script().replace('"${@}"', "")
    lines = [line.strip() for line in bootkube_script().splitlines()]
    starts = [line for line in lines if line.startswith("record_service_stage_start ")]
    assert len(starts) == len(set(starts)) == 11
    assert lines.count("record_service_stage_success") == 11


@pytest.mark.real("shellcheck")
def test_shellcheck_finds_no_error_in_the_scripts(tmp_path: Path) -> None:
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.sh").write_text(text)
    command = ["shellcheck", "--severity=error", "--external-sources", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


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
def node(tmp_path: Path, monkeypatch: Patch) -> Path:
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


def podman(*words: str) -> int:
    return main(["run", "--quiet", "--net=host", "--rm", *words])


def render(component: str, *options: str) -> int:
    return podman("--name", "x", "image", "render", f"--asset-output-dir=/assets/{component}-bootstrap", *options)


def pod(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return value


def test_images_are_named_and_the_unknown_is_refused(node: Path, capsys: Captured) -> None:
    assert podman("release@sha256:00", "image", "apiserver-network-proxy") == 0
    assert podman("release@sha256:00", "image", "etcd") == 0
    assert capsys.readouterr().out.split() == ["localhost/umbilical:lab", "localhost/etcd:lab"]
    assert podman("etcd", "etcdctl", "--endpoints=https://localhost:2379", "endpoint", "health") == 1
    assert podman("busybox", "true") == NOT_KNOWN
    assert "unknown command" in capsys.readouterr().err


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


def test_without_an_override_it_is_the_pod_that_it_was(node: Path, capsys: Captured) -> None:
    assert render_kube_apiserver(node) == pod(node / "opt/openshift/lab-payload/kube-apiserver.yaml")
    (node / "opt/openshift/wrong.yaml").write_text(json.dumps({**OVERRIDE, "kind": "Wrong"}))
    config = "--config-output-file=/assets/kube-apiserver-bootstrap/config"
    assert render("kube-apiserver", config, "--config-override-files=/assets/wrong.yaml") == 1
    assert "the lab's stand-in" in capsys.readouterr().err


def start() -> int:
    return podman("--name", "cluster-bootstrap", "image", "start", "--tear-down-early=false", "--asset-dir=/assets")


def test_cluster_bootstrap_starts_its_pods_creates_manifests_and_ends_them(node: Path, tmp_path: Path) -> None:
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


def test_a_static_pod_of_somebody_else_is_not_replaced(node: Path, capsys: Captured) -> None:
    (node / "opt/openshift/bootstrap-manifests/etcd.yaml").write_text("kind: Pod\n")
    (node / "etc/kubernetes/manifests/etcd.yaml").write_text("kind: Pod # another\n")
    assert start() == 1
    assert "etcd.yaml exists" in capsys.readouterr().err


def test_an_api_that_never_comes_ends_the_wait(
    node: Path, tmp_path: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    monkeypatch.setattr(release_payload, "READY_SECONDS", 0.05)
    (tmp_path / "ready").rmdir()
    assert start() == 1
    assert "the API on this machine is ready" in capsys.readouterr().err
    assert podman("--name", "wait-for-ceo", "image", "wait-for-ceo", "--kubeconfig-path=/assets/auth/kubeconfig") == 1


class _Lab(SimpleNamespace):
    """Answers every command well and remembers it."""

    def exec(self, node: str, command: list[str], **options: Any) -> CompletedCommand:
        self.asked.append((node, command))
        return CompletedCommand(node, tuple(command), 0, b"", b"")

    def processes(self) -> list[ProcessStatus]:
        return [ProcessStatus("bootstrap", UNIT, 1, self.exit_code)]

    def log(self, node: str, name: str) -> str:
        return "one\ntwo\nthree\nboom\n"

    def read(self, node: str, path: str) -> bytes:
        return json.dumps(self.record).encode()


def patched_testbed(tmp_path: Path, options: ScenarioOptions | None = None) -> tuple[PatchedTestbed, Any]:
    lab: Any = _Lab(topology=plan_topology(masters=2, workers=1), asked=[], exit_code=None)
    lab.directory = LabDirectory(tmp_path)
    (tmp_path / "logs").mkdir()
    return PatchedTestbed(lab, options or ScenarioOptions(server_image=UPSTREAM), Transcript("a test")), lab


def test_a_machine_without_the_node_s_programs_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(patched_ignition, "NEEDED", ("no-such-program", "sh"))
    with pytest.raises(LabError, match="UMB822") as caught:
        patched_testbed(tmp_path)[0].check_machine()
    assert caught.value.what.endswith("no-such-program")


def test_the_config_is_for_root_alone_and_the_api_has_an_address_of_its_own(tmp_path: Path) -> None:
    made, lab = patched_testbed(tmp_path)
    path = made.write_config()

    assert path.stat().st_mode & 0o777 == 0o600
    assert made.api_address == "10.91.0.5"
    assert made.api_address not in {node.address for node in lab.topology.nodes}
    assert made.api_address in made.certificate_names().names
    files = read_config(path.read_bytes())
    internal, loopback = (files.file(f"/opt/openshift/auth/{name}") for name in ("kubeconfig", "kubeconfig-loopback"))
    assert internal is not None
    assert "server: https://10.91.0.5:6443" in internal.text()
    assert loopback is not None
    assert "10.91.0.5" not in loopback.text()


@pytest.mark.parametrize(
    ("options", "image"),
    [(ScenarioOptions(server_image=UPSTREAM), "${KONNECTIVITY_IMAGE}"), (ScenarioOptions(), "localhost/umbilical:lab")],
)
def test_the_patch_is_the_command_that_users_run(tmp_path: Path, options: ScenarioOptions, image: str) -> None:
    made, _ = patched_testbed(tmp_path, options)
    patched, said = made.patch(made.write_config())

    assert "bootkube.sh of 4.18 recognised" in said[0]
    assert "0 failed" in said[-1]
    pod = read_config(patched.read_bytes()).file("/opt/openshift/umbilical/konnectivity-server-pod.yaml")
    assert pod is not None
    assert f"image: {image}" in pod.text()
    assert patched.stat().st_mode & 0o777 == 0o600


def test_a_command_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    made, _ = patched_testbed(tmp_path)
    (tmp_path / "broken.ign").write_text("{}")
    with pytest.raises(LabError, match=r"(?s)UMB857.*why: .*UMB"):
        made.patch(tmp_path / "broken.ign")


def test_the_api_s_address_leaves_one_node_before_another_has_it(tmp_path: Path) -> None:
    made, lab = patched_testbed(tmp_path)
    made.move_api(Plane.PRODUCTION.value)

    changes = [(node, command[2]) for node, command in lab.asked if command[1] == "address"]
    assert changes == [("bootstrap", "del"), ("master-0", "add")]
    flushed = [node for node, command in lab.asked if command[1] == "neighbour"]
    assert flushed == [node.name for node in lab.topology.nodes]


def test_a_script_that_failed_for_good_ends_every_wait(tmp_path: Path) -> None:
    made, lab = patched_testbed(tmp_path)
    lab.exit_code = 1
    with pytest.raises(LabError, match="UMB856") as caught:
        made.wait_for_certificates()
    assert caught.value.why == "two | three | boom"
    assert str(tmp_path) in caught.value.remedy


def test_stages_are_read_from_the_service_record(tmp_path: Path) -> None:
    made, lab = patched_testbed(tmp_path)
    lab.record = [
        {"phase": "service start"},
        {"phase": "stage start", "stage": "konnectivity-certs"},
        {"phase": "stage end", "stage": "konnectivity-certs", "result": "success"},
    ]
    assert [(stage.name, stage.result) for stage in made.stages()] == [("konnectivity-certs", "success")]


def test_oc_is_kubectl_but_for_what_only_openshift_has(tmp_path: Path) -> None:
    (tmp_path / "oc").write_text(OC)
    (tmp_path / "kubectl").write_text('#!/bin/bash\necho "kubectl $*"\n')
    for name in ("oc", "kubectl"):
        (tmp_path / name).chmod(0o755)

    def oc(*words: str) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        command = [str(tmp_path / "oc"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=environment)
        return done.stdout.strip()

    assert syntax_complaint(OC.encode()) is None
    assert oc("adm", "release", "info", "--version", "x") == "4.18.0-lab"
    assert oc("patch", "clusterversion", "version") == ""
    assert oc("delete", "namespace", "a", "--wait=false") == "kubectl delete namespace a --wait=false"
