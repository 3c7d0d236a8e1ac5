"""A patched bootstrap.ign boots the bootstrap node, and its script starts and removes the tunnel; and its testbed."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from umbilical.bootstrap.names import OWN, STAGES
from umbilical.bootstrap.render.render import KUBE_APISERVER_POD
from umbilical.bootstrap.shell.scripts import IMAGE_IN_PAYLOAD
from umbilical.fault import LabError
from umbilical.host.files import write_file
from umbilical.host.waiting import NotYet
from umbilical.lab.binaries import KONNECTIVITY, launcher
from umbilical.lab.bootstrap_config import Kubeconfigs, bootstrap_config
from umbilical.lab.control_plane import ADMIN_KUBECONFIG, KUBELET_KUBECONFIG, kubelet_node_assets, render_control_plane
from umbilical.lab.isolation import find_program
from umbilical.lab.kubernetes_testbed import API_PORT, CONTROLLERS, READY_SECONDS, KubernetesTestbed, Plane
from umbilical.lab.node_root import LOCAL_PROGRAMS_STORE
from umbilical.lab.release_payload import CONTROL_PLANE_MARK
from umbilical.lab.runner import PodStatus
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.testbed import BOOTSTRAP, Testbed
from umbilical.lab.transcript import CallResult
from umbilical.lab.tunnel_parts import UPSTREAM, ScenarioOptions, make_parts
from umbilical.manifests.control_plane_spec import url
from umbilical.manifests.objects import kubeconfig
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.authority import Authority
from umbilical.pki.control_plane_set import ControlPlaneNames, make_control_plane_set
from umbilical.pki.profiles import KeyType

if TYPE_CHECKING:
    from umbilical.lab.lab import CompletedCommand

UNIT: Final = "bootkube"
RECORD: Final = "/var/log/openshift/bootkube.json"
NEEDED: Final = ("openssl", "jq", "ip")
"""Programs of a bootstrap node that the patched script runs; a lab's node has this machine's."""
API_NUMBER: Final = 5
"""The API's own address is this one of the machine network; no node has it."""
COMMAND_SECONDS: Final = 60.0
# Keys by openssl, etcd, two API servers, agents in Python: on two busy cores.
SCRIPT_SECONDS: Final = 240.0
# Upstream's agents do not heed SIGTERM and have half a minute; before that, controllers on a master must be at work.
GONE_SECONDS: Final = 180.0
# Commands that need an OpenShift API get the answer of a finished cluster.
OC: Final = """#!/bin/bash
# The lab's stand-in: kubectl for everything but what only OpenShift has.
case "$*" in
    "adm release info --kubernetes "*) kubectl version --client -o json | jq -r .clientVersion.gitVersion ;;
    "adm release info "*) echo 4.18.0-lab ;;
    "patch clusterversion "*) ;;
    *) exec kubectl "$@" ;;
esac
"""
STAND_INS: Final = (
    "for podman, the release payload and cluster-bootstrap: a program of the lab, with kubectl",
    "for oc: kubectl; for systemd: a program that runs one unit; for keepalived: the lab moves the API's address",
    "for OpenShift's kube-apiserver: upstream's, with the override's flags on its command line",
    "for what operators render: the control plane's static pods are in the config already",
    "for cluster-bootstrap's wait for pods: a ConfigMap of the lab, and the bootstrap controllers' leases are deleted",
)


@dataclass(frozen=True)
class ScriptStage:
    """One line of the script's service record."""

    name: str
    result: str


class PatchedTestbed(KubernetesTestbed):
    _is_bootstrap_gone = False

    def check_machine(self) -> None:
        """Check before anything is created. Raises LabError: a program that the script runs is missing."""
        missing = [name for name in NEEDED if find_program(name) is None]
        if missing:
            what = f"a needed program is missing: {', '.join(missing)}"
            why = "the patched script runs it on the bootstrap node"
            raise LabError("UMB822", what, why, "install it (Debian: openssl, jq, iproute2)")

    @property
    def api_address(self) -> str:
        return str(self.lab.topology.machine_networks[0][API_NUMBER])

    def write_config(self) -> Path:
        """Write the bootstrap.ign of this lab's cluster, as an installer does."""
        self._authorities = make_control_plane_set(
            self.certificate_names(), datetime.now(UTC), key_type=KeyType.ECDSA_P256
        )
        tree = render_control_plane(self.plane_spec(Plane.BOOTSTRAP), self._authorities)
        kubeconfigs = Kubeconfigs(loopback=tree[ADMIN_KUBECONFIG].content, internal=self._admin(self._api_url))
        images = {IMAGE_IN_PAYLOAD: UPSTREAM}
        # For names and ports only: the script creates its own keys on the node.
        address = self.lab.topology.bootstrap.address
        self.parts = make_parts(self.options, address, Authority, datetime.now(UTC))
        path = self.lab.directory.logs / "bootstrap.ign"
        return write_file(path, bootstrap_config(self.lab.topology, tree, kubeconfigs, images), overwrite=True)

    def patch(self, path: Path) -> tuple[Path, list[str]]:
        """Run `umbilical bootstrap patch` and `verify`; return the patched file and their output."""
        patched = path.with_name("bootstrap-patched.ign")
        # Without --image the node uses the image in the release payload, with upstream's programs.
        image = [] if self.options.server_image == UPSTREAM else ["--image", self.options.server_image]
        said = _run("bootstrap", "patch", str(path), "--out", str(patched), *image).stderr.splitlines()
        verdict = _run("bootstrap", "verify", str(patched)).stdout.strip().splitlines()
        return patched, [line.strip() for line in (*said, *verdict[-1:]) if line.strip()]

    def boot(self, config: Path) -> str:
        """Apply the config to the bootstrap node, as its first boot does, and start the enabled unit."""
        applier = [sys.executable, "-m", "umbilical.lab.ignition_applier", "/"]
        applied = self.lab.exec(BOOTSTRAP, applier, stdin=config.read_bytes()).check()
        for name, text in (("podman", launcher("umbilical.lab.release_payload")), ("oc", OC)):
            self.lab.write(BOOTSTRAP, f"{LOCAL_PROGRAMS_STORE}/{name}", text.encode(), 0o755)
        self.move_api(BOOTSTRAP)
        self.runner.start(self.lab, BOOTSTRAP, None)
        self.lab.start(BOOTSTRAP, UNIT, [sys.executable, "-m", "umbilical.lab.unit_runner", f"{UNIT}.service"])
        return applied.text.strip()

    def move_api(self, node: str) -> None:
        """Move the API's address to a node, as keepalived does, and flush the neighbour tables."""
        width = self.lab.topology.machine_networks[0].prefixlen
        holder = {BOOTSTRAP, Plane.PRODUCTION.value} - {node}
        for other in holder:
            self.lab.exec(other, ["ip", "address", "del", f"{self.api_address}/{width}", "dev", "machine0"])
        self.lab.exec(node, ["ip", "address", "add", f"{self.api_address}/{width}", "dev", "machine0"]).check()
        for each in self.lab.topology.nodes:
            self.lab.exec(each.name, ["ip", "neighbour", "flush", "to", self.api_address])

    def wait_for_certificates(self) -> str:
        """Wait until the script has created them on the node; return how openssl shows the server's."""
        path = f"{OWN.pki_directory}/server/tls.crt"
        show = ["openssl", "x509", "-in", path, "-noout", "-issuer", "-enddate", "-ext", "subjectAltName"]

        def look() -> str:
            self._check_unit()
            shown = self.lab.exec(BOOTSTRAP, show)
            if shown.exit_code != 0:
                raise NotYet(f"no {path}")
            return " ".join(shown.text.split())

        return self.wait("the certificates on the node", look, SCRIPT_SECONDS)

    def wait_for_server(self) -> PodStatus:
        def look() -> PodStatus:
            self._check_unit()
            return self._look_at_server()

        return self.wait("the server's pod", look, SCRIPT_SECONDS)

    def wait_for_api(self) -> str:
        """Wait for the kube-apiserver that the script rendered; return its version and egress flag."""

        def look() -> bytes:
            self._check_unit()
            if not self.lab.exists(BOOTSTRAP, KUBE_APISERVER_POD):
                raise NotYet("cluster-bootstrap has not begun")
            return self.lab.read(BOOTSTRAP, KUBE_APISERVER_POD)

        (container,) = yaml.safe_load(self.wait("the static pod", look, SCRIPT_SECONDS))["spec"]["containers"]
        version = self._wait_ready(Plane.BOOTSTRAP)
        words = [*container.get("command", ()), *container.get("args", ())]
        flags = [word for word in words if word.startswith("--egress-selector-config-file=")]
        return f"kube-apiserver {version} {' '.join(flags)}"

    def start_nodes(self) -> None:
        """Join nodes with the API's own address, because the bootstrap node is removed later."""
        for node in self.members:
            self.write_files(node.name, kubelet_node_assets(node.name, self._api_url, self._set))
            self.runner.start(self.lab, node.name, KUBELET_KUBECONFIG)
        names = self.wait("all nodes to be Ready", self._look_at_nodes, READY_SECONDS)
        self.transcript.saw(f"Ready: {', '.join(names)}")

    def start_production(self) -> None:
        """Start a full control plane on a master."""
        spec = replace(self.plane_spec(Plane.PRODUCTION), has_controllers=True)
        self.write_files(Plane.PRODUCTION.value, render_control_plane(spec, self._set))
        version = self._wait_ready(Plane.PRODUCTION)
        self.transcript.saw(f"kube-apiserver {version} on {Plane.PRODUCTION.value}, with controllers and scheduler")

    def release_script(self) -> list[ScriptStage]:
        """Signal cluster-bootstrap that the masters are ready, wait for the script's end; return its last stages."""
        metadata = {"name": CONTROL_PLANE_MARK, "namespace": "kube-system"}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        self._is_bootstrap_gone = True
        # Move the address after this: clients must see the old kube-apiserver close their connections.
        self.wait("the bootstrap kube-apiserver to end", self._look_for_no_api, SCRIPT_SECONDS)
        self.move_api(Plane.PRODUCTION.value)
        self.transcript.saw(
            f"the bootstrap kube-apiserver has ended, {Plane.PRODUCTION.value} has {self.api_address} now"
        )
        # The bootstrap controllers' leases expire only a minute after the last renewal.
        self.kubectl("--namespace=kube-system", "delete", "lease", *CONTROLLERS, "--ignore-not-found").check()
        self.wait("the script's end", self._look_for_end, SCRIPT_SECONDS)
        return [stage for stage in self.stages() if stage.name in STAGES]

    def stages(self) -> list[ScriptStage]:
        """Read the service record that the script keeps."""
        entries = json.loads(self.lab.read(BOOTSTRAP, RECORD))
        return [ScriptStage(one["stage"], one["result"]) for one in entries if one["phase"] == "stage end"]

    def kubectl(
        self, *arguments: str, stdin: object = None, plane: Plane = Plane.BOOTSTRAP, timeout_seconds: float = 60.0
    ) -> "CompletedCommand":
        """Use production after the bootstrap kube-apiserver has ended."""
        left = Plane.PRODUCTION if self._is_bootstrap_gone else plane
        return super().kubectl(*arguments, stdin=stdin, plane=left, timeout_seconds=timeout_seconds)

    def _look_for_no_api(self) -> None:
        self._check_unit()
        if self._apiserver_pid() is not None:
            raise NotYet("it is still running")

    def _look_for_end(self) -> None:
        if self._check_unit() is None:
            raise NotYet(f"the last stage is {self.stages()[-1].name}")

    @property
    def _api_url(self) -> str:
        return url(self.api_address, API_PORT)

    def _admin(self, server_url: str) -> bytes:
        authority = self._set["kubernetes-ca"].certificate
        return yaml_bytes(kubeconfig("admin", server_url, authority, self._set["admin"]))

    def certificate_names(self) -> ControlPlaneNames:
        return replace(super().certificate_names(), names=(self.api_address,))

    def _check_unit(self) -> int | None:
        """Return the script's exit code; None while it runs. Raises LabError: it failed (UMB856)."""
        (unit,) = (each for each in self.lab.processes() if (each.node, each.name) == (BOOTSTRAP, UNIT))
        if unit.exit_code:
            lines = self.lab.log(BOOTSTRAP, UNIT).strip().splitlines()[-3:]
            remedy = f"read its log: {self.lab.directory.log_file(BOOTSTRAP, UNIT)}"
            raise LabError("UMB856", "the patched bootkube.sh failed", " | ".join(lines), remedy)
        return unit.exit_code


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run an umbilical command. Raises LabError: it failed; its error is in the message."""
    command: list[Any] = [sys.executable, "-m", "umbilical", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode != 0:
        why = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise LabError("UMB857", f"umbilical {' '.join(words[:2])} failed", why, f"umbilical {' '.join(words)}")
    return done


def run(testbed: Testbed) -> None:
    patched = PatchedTestbed(testbed.lab, testbed.options, testbed.transcript)
    patched.check_machine()
    boot(patched)
    watch_tunnel_start(patched)
    show_calls(patched)
    watch_tunnel_end(patched)


def boot(testbed: PatchedTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("write an installer's bootstrap.ign"):
        config = testbed.write_config()
        transcript.saw(f"{config.name}, {config.stat().st_size:,} bytes, with a bootkube.sh as of 4.18")
        for line in STAND_INS:
            transcript.saw(f"stand-in {line}")
    with transcript.step("umbilical bootstrap patch and verify"):
        config, said = testbed.patch(config)
        for line in said:
            transcript.saw(line)
    with transcript.step("the bootstrap node boots from it"):
        transcript.saw(testbed.boot(config))


def watch_tunnel_start(testbed: PatchedTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("bootkube.sh creates certificates with openssl"):
        transcript.saw(testbed.wait_for_certificates())
    with transcript.step("the server's static pod, its socket and port"):
        pod = testbed.wait_for_server()
        transcript.saw(f"{pod.namespace}/{pod.name} runs {pod.containers[0].image}")
        transcript.saw(testbed.server_socket())
        transcript.shows(server=True)
    with transcript.step("kube-apiserver starts with the script's egress file"):
        transcript.saw(testbed.wait_for_api())
        transcript.shows(apiserver=True)
    with transcript.step("nodes join"):
        testbed.start_nodes()
    with transcript.step("agents from the cluster's manifests connect"):
        agents = testbed.wait_for_agents()
        transcript.saw(f"connected: {', '.join(agents)}")
        transcript.shows(agents=tuple(agents))
        transcript.figures["agents"] = str(len(agents))


def show_calls(testbed: PatchedTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("a webhook in a pod, failurePolicy Fail"):
        transcript.shows(webhook=testbed.start_webhook())
    with transcript.step("through the tunnel the webhook allows and denies requests"):
        for wanted, verdict in ((CallResult.ALLOWED, "allow"), (CallResult.DENIED, "deny")):
            seen = testbed.wait_for(wanted, verdict)
            transcript.saw(seen.text)
            transcript.shows(call=seen.call)


def watch_tunnel_end(testbed: PatchedTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("a control plane on a master takes over"):
        testbed.start_production()
        transcript.shows(production_apiserver=True)
    with transcript.step("the script removes the tunnel and ends"):
        for stage in testbed.release_script():
            transcript.saw(f"{stage.name}: {stage.result}")
        transcript.shows(server=False, agents=(), apiserver=False, call=CallResult.NONE)
    with transcript.step("nothing of the tunnel is left"):
        testbed.wait_until_nothing_is_left(GONE_SECONDS)
        transcript.saw("no server, no agent, no object, no key, no socket, and the port is closed")
    with transcript.step("production reaches the webhook directly"):
        seen = testbed.wait_for(CallResult.DENIED, "deny", production=True)
        transcript.saw(seen.text)
        transcript.shows(production_call=seen.call)


SCENARIOS: Final = (
    Scenario(
        "patched-ignition",
        "a node boots from a patched bootstrap.ign; its script starts and removes the tunnel",
        run,
        # The programs of the release payload, as on a real node.
        options=ScenarioOptions(server_image=UPSTREAM, agent_image=UPSTREAM),
        programs=KONNECTIVITY,
        masters=2,
        workers=1,
    ),
)
