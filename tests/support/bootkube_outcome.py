"""What a patched bootkube.sh must have done when it ended well, asserted on the scratch node it ran on."""

import base64
import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from tests.support.bootkube_node import AT_CREATION, BootkubeNode

from umbilical.bootstrap.names import OWN, STAGES, STATIC_POD


def assert_finished(node: BootkubeNode, address: str) -> None:
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
    objects = our_objects(node, f"{AT_CREATION}/manifests")
    secret, agents = objects["konnectivity-agent-certs"], objects["konnectivity-agent-daemonset"]
    pki = node.node.path(f"{AT_CREATION}/umbilical/pki")
    for name, value in secret["data"].items():
        assert base64.b64decode(value) == (pki / "agent" / name).read_bytes()
    (container,) = agents["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/payload@sha256:" + "ab" * 32
    assert f"--proxy-server-host={address}" in [*container.get("command", []), *container.get("args", [])]
    server = yaml.safe_load(node.node.read(f"{AT_CREATION}/kubernetes/manifests/{Path(STATIC_POD).name}"))
    assert server["spec"]["containers"][0]["image"] == container["image"]


def our_objects(node: BootkubeNode, folder: str) -> dict[str, Any]:
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
