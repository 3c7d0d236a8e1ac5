"""A testbed is a lab with actors in it: a control plane, nodes, a webhook in a pod, and a tunnel that comes and goes.

What is the same with the real kube-apiserver (`kubernetes_testbed`) and with its stand-in (`stand_in_testbed`) is here:
how the tunnel is laid, who is connected, what went through it.
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
# A Python interpreter on two busy cores, then TLS; upstream's agents retry after up to ten seconds.
AGENTS_SECONDS: Final = 90.0
SERVER_SECONDS: Final = 60.0
# A namespace goes when its pods have, and those have ten seconds to end.
GONE_SECONDS: Final = 60.0
COUNTER: Final = "bytes"


@dataclass(frozen=True)
class WebhookVerdict:
    """How one call to the webhook ended, in the words of the caller."""

    call: CallResult
    text: str


class Testbed(ABC):
    """Actions in the order in which a story needs them. Each waits until its effect can be seen, bounded."""

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
        """Whether a second kube-apiserver can stand on a master."""

    @property
    @abstractmethod
    def caller(self) -> str:
        """Who asks the webhook from the bootstrap node."""

    @property
    @abstractmethod
    def cutter(self) -> str:
        """By what the tunnel is cut."""

    @abstractmethod
    def start_control_plane(self) -> None: ...

    @abstractmethod
    def start_nodes(self) -> None:
        """Have every node run pods and wait until all are ready."""

    @abstractmethod
    def start_webhook(self) -> str:
        """Run the webhook in a pod and have it asked; return the node that it is on."""

    @abstractmethod
    def start_production(self) -> None: ...

    @abstractmethod
    def call_webhook(self, verdict: str, *, production: bool = False) -> WebhookVerdict:
        """Have an object judged that the webhook allows (`allow`) or denies (`deny`)."""

    @abstractmethod
    def call_times(self, count: int) -> list[float]:
        """Make that many calls one after the other and return the seconds of each."""

    @abstractmethod
    def use_tunnel(self) -> None:
        """Point the bootstrap API server at the tunnel."""

    @abstractmethod
    def start_agents(self) -> None: ...

    @abstractmethod
    def teardown(self) -> str:
        """Cut the tunnel as a user would, and return the last words of the command."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """Look for what a teardown must not leave, and name it."""

    @abstractmethod
    def retire_bootstrap(self) -> None:
        """Take the bootstrap control plane away; etcd stays, since production stores there."""

    def change_options(self, options: ScenarioOptions) -> None:
        """Change who plays; takes effect with the next tunnel."""
        self.options = options
        self.parts = None

    def wait_until_nothing_is_left(self) -> None:
        def look() -> None:
            found = self.leftovers()
            if found:
                raise NotYet(", ".join(found))

        self.wait("the tunnel to be gone", look, GONE_SECONDS)

    def node_leftovers(self) -> list[str]:
        """Look on the nodes for what runs, listens or lies there of the tunnel."""
        found = [f"pod {pod.name} on {pod.node}" for pod in self._tunnel_pods()]
        spec = self.tunnel.spec
        found += [path for path in (STATIC_POD, spec.socket_on_host, OWN.pki_directory) if self._is_there(path)]
        if listeners_on(self.lab, BOOTSTRAP, spec.agent_port):
            found.append(f"port {spec.agent_port} is open")
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
        """Make certificates and files of a new tunnel; nothing runs yet."""
        address = self.lab.topology.bootstrap.address
        self.parts = make_parts(self.options, address, Authority, datetime.now(UTC))
        self.save()
        return self.parts

    def start_server(self) -> PodStatus:
        """Lay the tunnel's files onto the bootstrap node, where the static pod is found, and wait for the server."""
        parts = self.tunnel
        self.lab.count_port(BOOTSTRAP, COUNTER, parts.spec.agent_port)
        self.write_files(BOOTSTRAP, parts.files)
        self.lab.write(BOOTSTRAP, EGRESS_PATH, parts.egress_file)
        return self.wait("the server's pod", self._look_at_server, SERVER_SECONDS)

    @property
    def tunnel(self) -> TunnelParts:
        if self.parts is None:
            raise LabError("UMB851", "there is no tunnel in this lab", "none was laid", "umbilical lab run --keep NAME")
        return self.parts

    def server_socket(self) -> str:
        """Wait for the socket and the port, and return the kernel's own words on both."""
        path, port = self.tunnel.spec.socket_on_host, self.tunnel.spec.agent_port

        def look() -> str:
            socket = self.lab.exec(BOOTSTRAP, ["ls", "-l", path])
            listening = listeners_on(self.lab, BOOTSTRAP, port)
            if socket.exit_code != 0 or not listening:
                raise NotYet(f"socket {path}: {'there' if socket.exit_code == 0 else 'missing'}, port {port} closed")
            return f"{' '.join(socket.text.split())}; LISTEN {' '.join(listening)}"

        return self.wait("the server's socket and port", look, SERVER_SECONDS)

    def connected_agents(self) -> list[str]:
        """Ask every agent whether it is connected, and return the nodes of those that say so."""
        return [node.name for node in self.members if self._is_connected(node)]

    def wait_for_agents(self, count: int | None = None) -> list[str]:
        """Wait until this many agents (all, if none is said) are connected."""
        wanted = len(self.members) if count is None else count

        def look() -> list[str]:
            found = self.connected_agents()
            if len(found) < wanted:
                raise NotYet(f"{len(found)} of {wanted} agents are connected: {', '.join(found) or 'none'}")
            return found

        return self.wait(f"{wanted} agents", look, AGENTS_SECONDS)

    def wait_for(
        self, wanted: CallResult, verdict: str, seconds: float = 60.0, *, production: bool = False
    ) -> WebhookVerdict:
        """Ask until the answer is as wanted: a new configuration takes kube-apiserver a moment."""

        def look() -> WebhookVerdict:
            seen = self.call_webhook(verdict, production=production)
            if seen.call is not wanted:
                raise NotYet(f"the call was {seen.call.value}: {seen.text}")
            return seen

        return self.wait(f"a call that is {wanted.value}", look, seconds)

    def tunnel_bytes(self) -> int:
        """Return what went over the agents' port in both directions, as the kernel counted it."""
        return self.lab.counted_bytes(BOOTSTRAP, COUNTER)

    def fetch(self, node: str, url: str) -> str | None:
        """GET from inside a node; None unless the answer is a good one."""
        done = self.lab.exec(node, [sys.executable, "-m", "umbilical.lab.fetch", url], timeout_seconds=20)
        return done.text if done.exit_code == 0 else None

    def wait(self, what: str, look: Callable[[], Seen], seconds: float) -> Seen:
        return wait(what, look, seconds)

    @property
    def members(self) -> Sequence[Node]:
        """The nodes that belong to the cluster: not the bootstrap node, nor others of the control plane's network."""
        return self.lab.topology.members

    def agent_pod(self, node: str) -> PodStatus | None:
        return self.find_pod(node, AGENT_NAME)

    def find_pod(self, node: str, prefix: str) -> PodStatus | None:
        pods = [pod for pod in self.runner.pods(self.lab, node) if pod.name.startswith(prefix)]
        return next((pod for pod in pods if pod.is_running), pods[0] if pods else None)

    def save(self) -> None:
        """Remember the options and the tunnel's keys (0600), so that another terminal can go on."""
        secrets = None if self.parts is None else secrets_of(self.parts)
        content = json.dumps({"cast": self.options.to_json(), "tunnel": secrets}).encode()
        write_file(self.lab.directory.testbed_file, content, overwrite=True)

    def restore(self, secrets: Mapping[str, str] | None) -> None:
        """Take up the tunnel that was laid earlier."""
        address = self.lab.topology.bootstrap.address
        if secrets is not None:
            self.parts = restore_parts(self.options, address, Authority, secrets, datetime.now(UTC))

    def _is_connected(self, node: Node) -> bool:
        pod = self.agent_pod(node.name)
        if pod is None or not pod.is_running or not pod.address:
            return False
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        return self.fetch(node.name, f"http://{host}:{self.tunnel.spec.health_port}/readyz") is not None

    def _look_at_server(self) -> PodStatus:
        pod = self.find_pod(BOOTSTRAP, SERVER_NAME)
        if pod is None or not pod.is_running:
            raise NotYet("the pod does not run" if pod else "there is no such pod")
        return pod


def listeners_on(lab: "Lab", node: str, *ports: int) -> list[str]:
    """Return who listens on a node on any of these TCP ports, as ADDRESS:PORT."""
    return listeners.on_ports(lab.exec(node, listeners.COMMAND).text, ports)
