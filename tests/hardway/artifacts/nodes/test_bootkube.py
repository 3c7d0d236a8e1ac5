"""The bootstrap node's script, as text and for real: run by bash below a directory, with stand-ins for curl and oc."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import inputs

from umbilical.bootstrap.names import BOOTKUBE, NATIVE
from umbilical.bootstrap.shell.scripts import certificate_script
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.bootkube import (
    API_SECONDS,
    DONE,
    OBJECTS_SECONDS,
    SERVER_CA,
    UNIT,
    add_bootkube,
    script,
)
from umbilical.hardway.artifacts.nodes.merging import NodeParts
from umbilical.hardway.artifacts.static_pods.pods import CVO_FILE
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.pki.certificate import read_certificates


def without_tunnel(profile: ClusterProfile) -> Inputs:
    given = inputs(profile)
    return replace(given, cluster=replace(given.cluster, konnectivity=Switch.OFF))


SCRIPTS: Final = {
    f"{profile.value}-{name}": script(given(profile)).decode()
    for profile in ClusterProfile
    for name, given in (("tunnel", inputs), ("direct", without_tunnel))
}
each_script = pytest.mark.parametrize("text", list(SCRIPTS.values()), ids=list(SCRIPTS))


@each_script
def test_bash_can_read_it_and_nothing_is_left_to_fill(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in text.splitlines() if "#@" in line or "@SERVER" in line] == []


@each_script
@pytest.mark.real("shellcheck")
def test_shellcheck_has_nothing_to_say(text: str) -> None:
    command = ["shellcheck", "--shell=bash", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_without_a_tunnel_there_is_nothing_of_it() -> None:
    parts = NodeParts()
    add_bootkube(parts, without_tunnel(ClusterProfile.KUBERNETES))
    assert NATIVE.certificate_script not in parts.files
    assert b"tunnel" not in parts.files[BOOTKUBE].content
    assert [one.name for one in parts.units] == [UNIT]


class Machine:
    """A directory in place of the bootstrap node's root."""

    def __init__(self, root: Path, given: Inputs) -> None:
        self._root = root
        self._programs = root / "programs"
        for folder in ("programs", "etc/kubernetes/manifests", "etc/kubernetes/late-static-pods", "opt/openshift"):
            (root / folder).mkdir(parents=True)
        text = script(given).decode().replace(f" {API_SECONDS} ", " 1 ").replace(f" {OBJECTS_SECONDS} ", " 1 ")
        for folder in ("/etc/kubernetes", "/opt/openshift", "/usr/local/bin"):
            text = text.replace(folder, f"{root}{folder}")
        self._text = text
        self.program("curl", "echo ok")
        self._write("usr/local/bin/konnectivity-certs.sh", certificate_script().decode())

    def program(self, name: str, body: str) -> None:
        self._write(f"programs/{name}", f'#!/bin/bash\necho "{name} $*" >>{self._root}/calls\n{body}\n')

    def _write(self, path: str, text: str) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    @property
    def calls(self) -> str:
        return (self._root / "calls").read_text()

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self._programs}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash"], input=self._text, env=environment, text=True, capture_output=True, timeout=120, check=False
        )


MakeMachine = Callable[[Inputs], Machine]


@pytest.fixture
def machine(tmp_path: Path) -> MakeMachine:
    return lambda given: Machine(tmp_path, given)


def test_it_makes_certificates_for_the_address_that_agents_dial(machine: MakeMachine) -> None:
    node = machine(inputs(ClusterProfile.KUBERNETES))
    done = node.run()
    assert done.returncode == 0, done.stderr
    (server,) = read_certificates(node.path(f"{layout.TUNNEL_PKI}/server/tls.crt").read_bytes())
    assert [str(address) for address in server.ip_addresses] == ["192.168.126.100"]
    assert {path.name for path in node.path(f"{layout.TUNNEL_PKI}/agent").iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    assert node.path(DONE).exists()


def test_a_second_run_keeps_the_certificates(machine: MakeMachine) -> None:
    node = machine(inputs(ClusterProfile.KUBERNETES))
    node.run()
    made = node.path(f"{layout.TUNNEL_PKI}/server/tls.crt").read_bytes()
    assert node.run().returncode == 0
    assert node.path(f"{layout.TUNNEL_PKI}/server/tls.crt").read_bytes() == made


@pytest.mark.parametrize("answer", ["echo '[-]etcd failed'", "exit 7", ":"], ids=["not-ready", "refused", "empty"])
def test_an_answer_that_is_not_ok_is_no_readiness(machine: MakeMachine, answer: str) -> None:
    node = machine(without_tunnel(ClusterProfile.KUBERNETES))
    node.program("curl", answer)
    done = node.run()
    assert done.returncode == 1
    assert "timed out waiting for kube-apiserver" in done.stderr
    assert not node.path(DONE).exists()


def test_the_api_is_asked_on_this_node_and_believed_by_our_signers_alone(machine: MakeMachine) -> None:
    node = machine(without_tunnel(ClusterProfile.KUBERNETES))
    node.run()
    (call,) = node.calls.splitlines()
    assert call.endswith(" https://localhost:6443/readyz")
    assert f"--cacert {node.path(SERVER_CA)} " in call
    assert "--insecure" not in call


OPERATOR_IS_AWAITED: Final = f"""
case "$*" in
    *clusterversion*) exit 0 ;;
    *featuregate*) echo "4.17.9 {hardway.VERSION}" ;;
    *"wait crd --all"*) exit 0 ;;
    *) exit 9 ;;
esac
"""


def late_pod(node: Machine) -> Path:
    pod = node.path(f"{layout.NODE_LATE_MANIFESTS}/{CVO_FILE}")
    pod.write_text("kind: Pod\n")
    return pod


def test_the_version_operator_starts_when_what_it_needs_is_there(machine: MakeMachine) -> None:
    node = machine(without_tunnel(ClusterProfile.OPENSHIFT))
    node.program("oc", OPERATOR_IS_AWAITED)
    pod = late_pod(node)
    done = node.run()
    assert done.returncode == 0, done.stderr
    assert not pod.exists()
    assert node.path(f"{layout.NODE_MANIFESTS}/{CVO_FILE}").read_text() == "kind: Pod\n"
    # Started again after a kill, it has nothing left to wait for.
    assert node.run().returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "awaited"),
    [
        ("*clusterversion*) exit 0", "*clusterversion*) exit 1", "ClusterVersion version"),
        (f" {hardway.VERSION}", f" {hardway.VERSION}1", "FeatureGate cluster with a status for 4.18.0"),
        ('*"wait crd --all"*) exit 0', '*"wait crd --all"*) exit 1', "every CRD to be established"),
    ],
    ids=["no-version", "other-version", "crds"],
)
def test_the_version_operator_is_held_back_until_then(machine: MakeMachine, old: str, new: str, awaited: str) -> None:
    node = machine(without_tunnel(ClusterProfile.OPENSHIFT))
    assert old in OPERATOR_IS_AWAITED
    node.program("oc", OPERATOR_IS_AWAITED.replace(old, new))
    pod = late_pod(node)
    done = node.run()
    assert done.returncode == 1
    assert f"timed out waiting for {awaited}" in done.stderr
    assert pod.exists()
    assert not node.path(DONE).exists()
