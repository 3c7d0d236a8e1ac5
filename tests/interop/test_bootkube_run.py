"""The patched script is run: real bash, openssl, jq and ip, killed at every stage and started again by and by."""

import base64
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.bootkube_node import AT_CREATION, BootkubeNode
from tests.support.bootstrap_corpus import Case
from tests.support.scratch_node import ScratchNode

from umbilical.assets.bootkube.patch import patch, undo
from umbilical.assets.names import OWN, STAGES, STATIC_POD
from umbilical.assets.spec import Shape, TunnelSpec, for_shape
from umbilical.host.netns import Namespace, Network
from umbilical.ignition.document import Document

pytestmark = [pytest.mark.real("openssl", "jq", "ip"), pytest.mark.root, pytest.mark.timeout(600)]

IPV4: Final = "10.0.0.5"
IPV6: Final = "fd2e:6f44:5dd8::5"
KILLED: Final = -9
OPENSHIFT: Final = for_shape(Shape.OPENSHIFT)


@pytest.fixture(scope="module")
def bootstrap_host() -> Iterator[Namespace]:
    """A namespace with an address in the machine network of either family, and no way out of it."""
    with Network("umb-bootkube") as network:
        host, neighbour = network.create("host"), network.create("neighbour")
        network.link(host, f"{IPV4}/16", neighbour, "10.0.0.1/16")
        network.link(host, f"{IPV6}/64", neighbour, "fd2e:6f44:5dd8::1/64")
        network.route(host, "default", "10.0.0.1")
        yield host


def _node(folder: Path, namespace: Namespace, case: Case, spec: TunnelSpec = OPENSHIFT) -> BootkubeNode:
    patched = patch(Document(case.content()), spec).document.content
    return BootkubeNode(ScratchNode(folder, namespace), patched)


def _assert_finished(node: BootkubeNode, address: str) -> None:
    assert node.has("/opt/openshift/.bootkube.done")
    _assert_certificates(node, address)
    _assert_manifests(node, address)
    _assert_kube_apiserver(node)
    _assert_calls_in_order(node)
    _assert_nothing_left(node)
    _assert_record(node)


def _assert_certificates(node: BootkubeNode, address: str) -> None:
    pki = node.node.path(f"{AT_CREATION}/umbilical/pki")
    for role, purpose in (("server", "sslserver"), ("agent", "sslclient")):
        folder = pki / role
        _openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", folder / "ca.crt", folder / "tls.crt")
        assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
        public = _openssl("pkey", "-pubout", "-in", folder / "tls.key")
        assert _openssl("x509", "-pubkey", "-noout", "-in", folder / "tls.crt") == public
    shown = _openssl("x509", "-noout", "-ext", "subjectAltName", "-in", pki / "server" / "tls.crt")
    names = [name.strip() for name in shown.splitlines()[-1].split(",")]
    assert [ip_address(name.removeprefix("IP Address:")) for name in names] == [ip_address(address)]


def _openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _assert_manifests(node: BootkubeNode, address: str) -> None:
    objects = _objects(node, f"{AT_CREATION}/manifests")
    secret, agents = objects["konnectivity-agent-certs"], objects["konnectivity-agent-daemonset"]
    pki = node.node.path(f"{AT_CREATION}/umbilical/pki")
    for name, value in secret["data"].items():
        assert base64.b64decode(value) == (pki / "agent" / name).read_bytes()
    (container,) = agents["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/payload@sha256:" + "ab" * 32
    assert f"--proxy-server-host={address}" in [*container.get("command", []), *container.get("args", [])]
    server = yaml.safe_load(node.node.read(f"{AT_CREATION}/kubernetes/manifests/{Path(STATIC_POD).name}"))
    assert server["spec"]["containers"][0]["image"] == container["image"]


def _objects(node: BootkubeNode, folder: str) -> dict[str, Any]:
    """Parse every manifest that is ours; none may have a placeholder left."""
    texts = {path.stem: path.read_text() for path in node.node.path(folder).glob("konnectivity-*.yaml")}
    assert [name for name, text in texts.items() if "${" in text] == []
    return {name: yaml.safe_load(text) for name, text in texts.items()}


def _assert_kube_apiserver(node: BootkubeNode) -> None:
    """Its configuration names a file that lies beside it, and not before the stage that renders it is over."""
    folder = f"{AT_CREATION}/kubernetes/bootstrap-configs"
    config = yaml.safe_load(node.node.read(f"{folder}/kube-apiserver-config.yaml"))
    (egress,) = config["apiServerArguments"]["egress-selector-config-file"]
    beside = yaml.safe_load(node.node.read(f"{folder}/{Path(egress).name}"))
    assert beside["kind"] == "EgressSelectorConfiguration"


def _assert_calls_in_order(node: BootkubeNode) -> None:
    calls = node.node.calls()
    signs = [
        "image apiserver-network-proxy",
        "--name kube-apiserver-render",
        "--name mco-render",
        "--name etcdctl",
        "--name cluster-bootstrap",
        "--name wait-for-ceo",
        "oc delete",
    ]
    # The first of each: what has no marker is asked for again after every restart.
    first = [next(index for index, call in enumerate(calls) if sign in call) for sign in signs]
    assert first == sorted(first)
    repeated = (" image ", "release info", "--name etcdctl", "--name wait-for-ceo", "oc delete")
    late = [call for call in calls[first[-1] :] if not any(sign in call for sign in repeated)]
    assert late == [], "something was left to do when the tunnel was taken down"


def _assert_nothing_left(node: BootkubeNode) -> None:
    assert not node.has(STATIC_POD)
    assert not node.has(OWN.pki_directory)
    keys = [path for path in node.node.root.rglob("*.key") if not path.is_relative_to(node.node.path(AT_CREATION))]
    assert [path.name for path in keys if "umbilical" in str(path.relative_to(node.node.root))] == []
    assert not node.has("/opt/openshift/tls/konnectivity")
    # What the machine config operator serves to every node must not have the agents' key in it.
    served = [path.name for path in node.node.path("/etc/mcc/bootstrap").iterdir()]
    assert [name for name in served if "konnectivity" in name] == []


def _assert_record(node: BootkubeNode) -> None:
    open_stage = None
    for entry in node.record():
        match entry["phase"]:
            case "service start":
                open_stage = None
            case "stage start":
                assert open_stage is None
                open_stage = entry["stage"]
            case "stage end":
                assert entry["stage"] == open_stage
                open_stage = None
    assert node.record()[-1] == {**node.record()[-1], "phase": "service end", "result": "success"}
    # Killed between its marker and its entry, a stage is done without having said so; none says so twice.
    ours = [stage for stage in node.stages() if stage in STAGES]
    assert ours == [stage for stage in STAGES if stage in ours]


@pytest.mark.parametrize(
    "case",
    [
        Case("4.12"),
        Case("4.15"),
        Case("4.22"),
        Case("5.1", native="off"),
        Case("4.19", gzip=True),
    ],
    ids=str,
)
def test_a_patched_script_runs_to_its_end(case: Case, tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, case)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    _assert_finished(node, IPV4)
    assert [stage for stage in node.stages() if stage in STAGES] == list(STAGES)
    assert node.stages()[-1] == STAGES[-1]


def test_a_patched_script_runs_where_ipv6_comes_first(tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18", ipv6=True))
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    _assert_finished(node, IPV6)


def test_the_planned_shape_runs_too(tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"), for_shape(Shape.SEED))
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    _assert_finished(node, IPV4)


def test_an_undone_script_runs_as_if_nothing_had_been(tmp_path: Path, bootstrap_host: Namespace) -> None:
    undone = undo(patch(Document(Case("4.20").content()), OPENSHIFT).document)
    node = BootkubeNode(ScratchNode(tmp_path / "node", bootstrap_host), undone.content)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert node.node.read("/etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml") == ""
    assert [call for call in node.node.calls() if "delete" in call or "network-proxy" in call] == []
    assert set(node.stages()).isdisjoint(STAGES)


def test_the_built_in_tunnel_of_the_corpus_runs_through_the_same_stages(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = BootkubeNode(ScratchNode(tmp_path / "node", bootstrap_host), Case("5.1", native="on").content())
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert [stage for stage in node.stages() if stage in STAGES] == list(STAGES)
    assert _objects(node, f"{AT_CREATION}/manifests")["konnectivity-agent-daemonset"]["kind"] == "DaemonSet"


def _installers_stages(case: Case, tmp_path: Path, namespace: Namespace) -> list[str]:
    node = _node(tmp_path / "before", namespace, case)
    assert node.run().exit_code == 0
    return node.stages()


@pytest.mark.parametrize("release", ["4.13", "4.23"])
def test_it_may_be_killed_in_every_stage_of_the_script(release: str, tmp_path: Path, bootstrap_host: Namespace) -> None:
    case = Case(release)
    stages = _installers_stages(case, tmp_path, bootstrap_host)
    node = _node(tmp_path / "node", bootstrap_host, case)
    for stage in stages:
        # Right after its beginning, and so that the one before it is over.
        assert node.run_killed_in(stage, 12).exit_code == KILLED, stage
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    _assert_finished(node, IPV4)


def test_it_may_be_killed_at_every_line_of_our_stages(tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    for stage in STAGES:
        offset = 0
        while not node.is_done(stage):
            offset += 1
            assert node.run_killed_in(stage, offset).exit_code == KILLED, (stage, offset)
        assert offset > 5
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    _assert_finished(node, IPV4)


def test_a_failure_is_on_the_record_with_its_stage_and_the_next_try_goes_on(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    real = node.node.read("/usr/local/bin/podman")
    broken = real.replace('*" image "*)', '*" image apiserver-network-proxy"*) exit 7 ;;\n    *" image "*)')
    node.node.write("/usr/local/bin/podman", broken, 0o555)
    assert node.run().exit_code != 0
    assert node.stages("failure") == ["konnectivity-server-bootstrap"]
    assert not node.has(STATIC_POD)
    node.node.write("/usr/local/bin/podman", real, 0o555)
    assert node.run().exit_code == 0
    _assert_finished(node, IPV4)


def test_a_cluster_that_refuses_the_deletion_does_not_hold_the_installation_up(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    oc = node.node.read("/usr/local/bin/oc").replace('*" release', '"delete "*) exit 1 ;;\n    *" release')
    node.node.write("/usr/local/bin/oc", oc, 0o555)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert node.has("/opt/openshift/.bootkube.done")
    assert node.stages("failure") == ["konnectivity-cleanup"]
    assert "umbilical bootstrap teardown" in ended.stderr
