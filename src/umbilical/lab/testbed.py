"""A testbed is a lab with a control plane, nodes, a webhook in a pod, and a tunnel.

This module has what is common to the real kube-apiserver (`kubernetes_testbed`) and its stand-in (`stand_in_testbed`):
setting up the tunnel, waiting for agents, counting bytes.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, OWN, SERVER_NAME, STATIC_POD
from umbilical.bootstrap.render.kube_apiserver import EGRESS_PATH
from umbilical.fault import LabError
from umbilical.host.files import write_file
from umbilical.host.waiting import NotYet, Seen
from umbilical.lab import listeners
from umbilical.lab.lab import Lab
from umbilical.lab.runner import LabRunner, PodStatus
from umbilical.lab.runners import runner_of
from umbilical.lab.topology import Node
from umbilical.lab.transcript import CallResult, Transcript
from umbilical.lab.tunnel_parts import ScenarioOptions, TunnelParts, make_parts, restore_parts, secrets_of
from umbilical.lab.waiting import wait
from umbilical.manifests.tree import AssetTree
from umbilical.pki.authority import Authority

BOOTSTRAP: Final = "bootstrap"
# Python start and TLS on two busy cores; upstream's agents retry after up to 10 s.
AGENTS_SECONDS: Final = 90.0
SERVER_SECONDS: Final = 60.0
# A namespace is deleted after its pods, which have 10 s to end.
GONE_SECONDS: Final = 60.0
COUNTER: Final = "bytes"


@dataclass(frozen=True)
class WebhookVerdict:
    """Result of one call to the webhook, with the caller's message."""

    call: CallResult
    text: str


class Testbed(ABC):
    """The actions of a scenario. Each waits, with a timeout, until its effect is visible."""

    def __init__(self, lab: Lab, options: ScenarioOptions, transcript: Transcript) -> None:
        self.lab = lab
        self.options = options
        self.transcript = transcript
        self.parts: TunnelParts | None = None

    @property
    def runner(self) -> LabRunner:
        return runner_of(self.lab)

    @property
    @abstractmethod
    def has_production(self) -> bool:
        """Whether a second kube-apiserver can run on a master."""

    @property
    @abstractmethod
    def caller(self) -> str:
        """The program that calls the webhook from the bootstrap node, for step titles."""

    @property
    @abstractmethod
    def cutter(self) -> str:
        """How the tunnel is removed, for step titles."""

    @abstractmethod
    def start_control_plane(self) -> None: ...

    @abstractmethod
    def start_nodes(self) -> None:
        """Start the pod runner on every node and wait until all nodes are ready."""

    @abstractmethod
    def start_webhook(self) -> str:
        """Run the webhook in a pod and register it; return its node."""

    @abstractmethod
    def start_production(self) -> None: ...

    @abstractmethod
    def call_webhook(self, verdict: str, *, production: bool = False) -> WebhookVerdict:
        """Create an object (dry run) that the webhook allows (`allow`) or denies (`deny`)."""

    @abstractmethod
    def call_times(self, count: int) -> list[float]:
        """Make `count` calls one after the other and return the duration of each in seconds."""

    @abstractmethod
    def use_tunnel(self) -> None:
        """Configure the bootstrap API server to use the tunnel."""

    @abstractmethod
    def start_agents(self) -> None: ...

    @abstractmethod
    def teardown(self) -> str:
        """Remove the tunnel as a user would; return the command's output."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """List what a teardown should have removed and did not."""

    @abstractmethod
    def retire_bootstrap(self) -> None:
        """Stop the bootstrap control plane except etcd, which production uses."""

    def change_options(self, options: ScenarioOptions) -> None:
        """Change the options; takes effect with the next tunnel."""
        self.options = options
        self.parts = None

    def wait_until_nothing_is_left(self, seconds: float = GONE_SECONDS) -> None:
        def look() -> None:
            found = self.leftovers()
            if found:
                raise NotYet(", ".join(found))

        self.wait("the tunnel to be gone", look, seconds)

    def node_leftovers(self) -> list[str]:
        """List pods, files and open ports of the tunnel on the nodes."""
        found = [f"pod {pod.name} on {pod.node}" for pod in self._tunnel_pods()]
        spec = self.tunnel.spec
        found += [path for path in (STATIC_POD, spec.socket_on_host, OWN.pki_directory) if self._is_there(path)]
        if listeners_on(self.lab, BOOTSTRAP, spec.agent_port):
            found.append(f"open port {spec.agent_port}")
        return found

    def _is_there(self, path: str) -> bool:
        return self.lab.exec(BOOTSTRAP, ["test", "-e", path]).exit_code == 0

    def _tunnel_pods(self) -> Iterator[PodStatus]:
        for node in self.lab.topology.nodes:
            for pod in self.runner.pods(self.lab, node.name):
                if pod.name.startswith((SERVER_NAME, AGENT_NAME)):
                    yield pod

    def write_files(self, node: str, tree: AssetTree) -> None:
        for asset in tree:
            self.lab.write(node, asset.path, asset.content, asset.mode)

    def make_tunnel(self) -> TunnelParts:
        """Create certificates and files of a new tunnel, without starting it."""
        self.parts = make_parts(self.options, self._dialled_address(), Authority, datetime.now(UTC))
        self.save()
        return self.parts

    def start_server(self) -> PodStatus:
        """Write the tunnel's files, with the server's static pod, to the bootstrap node; wait for the server."""
        parts = self.tunnel
        self.lab.count_port(BOOTSTRAP, COUNTER, parts.spec.agent_port)
        self.write_files(BOOTSTRAP, parts.files)
        self.lab.write(BOOTSTRAP, EGRESS_PATH, parts.egress_file)
        return self.wait("the server's pod", self._look_at_server, SERVER_SECONDS)

    @property
    def tunnel(self) -> TunnelParts:
        if self.parts is None:
            raise LabError("UMB851", "this lab has no tunnel", "none was set up", "umbilical lab run --keep NAME")
        return self.parts

    def server_socket(self) -> str:
        """Wait for the socket and the port; return how `ls` and the kernel show them."""
        path, port = self.tunnel.spec.socket_on_host, self.tunnel.spec.agent_port

        def look() -> str:
            socket = self.lab.exec(BOOTSTRAP, ["ls", "-l", path])
            listening = listeners_on(self.lab, BOOTSTRAP, port)
            if socket.exit_code != 0 or not listening:
                raise NotYet(f"socket {path}: {'present' if socket.exit_code == 0 else 'missing'}, port {port} closed")
            return f"{' '.join(socket.text.split())}; LISTEN {' '.join(listening)}"

        return self.wait("the server's socket and port", look, SERVER_SECONDS)

    def connected_agents(self) -> list[str]:
        """Return the nodes whose agent reports that it is connected."""
        return [node.name for node in self.members if self._is_connected(node)]

    def wait_for_agents(self, count: int | None = None) -> list[str]:
        """Wait until `count` agents are connected; None: all."""
        wanted = len(self.members) if count is None else count

        def look() -> list[str]:
            found = self.connected_agents()
            if len(found) < wanted:
                raise NotYet(f"{len(found)} of {wanted} agents connected: {', '.join(found) or 'none'}")
            return found

        return self.wait(f"{wanted} agents", look, AGENTS_SECONDS)

    def wait_for(
        self, wanted: CallResult, verdict: str, seconds: float = 60.0, *, production: bool = False
    ) -> WebhookVerdict:
        """Call the webhook until the result is `wanted`: kube-apiserver needs a moment to load a new configuration."""

        def look() -> WebhookVerdict:
            seen = self.call_webhook(verdict, production=production)
            if seen.call is not wanted:
                raise NotYet(f"the call was {seen.call.value}: {seen.text}")
            return seen

        return self.wait(f"a call with the result {wanted.value}", look, seconds)

    def tunnel_bytes(self) -> int:
        """Return the bytes through the agents' port in both directions, counted by the kernel."""
        return self.lab.counted_bytes(BOOTSTRAP, COUNTER)

    def fetch(self, node: str, url: str) -> str | None:
        """Send a GET request from inside a node; None unless it succeeds."""
        done = self.lab.exec(node, [sys.executable, "-m", "umbilical.lab.fetch", url], timeout_seconds=20)
        return done.text if done.exit_code == 0 else None

    def wait(self, what: str, look: Callable[[], Seen], seconds: float) -> Seen:
        return wait(what, look, seconds)

    @property
    def members(self) -> Sequence[Node]:
        """Nodes of the cluster, without the bootstrap node and the management network."""
        return self.lab.topology.members

    def agent_pod(self, node: str) -> PodStatus | None:
        return self.find_pod(node, AGENT_NAME)

    def find_pod(self, node: str, prefix: str) -> PodStatus | None:
        pods = [pod for pod in self.runner.pods(self.lab, node) if pod.name.startswith(prefix)]
        return next((pod for pod in pods if pod.is_running), pods[0] if pods else None)

    def save(self) -> None:
        """Write the options and the tunnel's keys to a file (0600), for commands from other terminals."""
        secrets = None if self.parts is None else secrets_of(self.parts)
        content = json.dumps({"cast": self.options.to_json(), "tunnel": secrets}).encode()
        write_file(self.lab.directory.testbed_file, content, overwrite=True)

    def restore(self, secrets: Mapping[str, str] | None) -> None:
        """Load the tunnel that an earlier command set up."""
        if secrets is not None:
            address = self._dialled_address()
            self.parts = restore_parts(self.options, address, Authority, secrets, datetime.now(UTC))

    def _dialled_address(self) -> str:
        """Return the address of the bootstrap node that agents dial."""
        node, version = self.lab.topology.bootstrap, self.options.dial_version
        return next(str(one.ip) for one in node.addresses if version in (None, one.version))

    def _is_connected(self, node: Node) -> bool:
        pod = self.agent_pod(node.name)
        if pod is None or not pod.is_running or not pod.address:
            return False
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        return self.fetch(node.name, f"http://{host}:{self.tunnel.spec.health_port}/readyz") is not None

    def _look_at_server(self) -> PodStatus:
        pod = self.find_pod(BOOTSTRAP, SERVER_NAME)
        if pod is None or not pod.is_running:
            raise NotYet("the pod is not running" if pod else "the pod does not exist")
        return pod


def listeners_on(lab: "Lab", node: str, *ports: int) -> list[str]:
    """Return the listeners on these TCP ports of a node, as ADDRESS:PORT."""
    return listeners.on_ports(lab.exec(node, listeners.COMMAND).text, ports)
