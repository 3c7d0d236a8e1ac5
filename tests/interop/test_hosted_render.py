"""What `hosted render` writes, run as it is: servers and agents with the rendered flags, files and certificates.

Only places change: ports, and where on this machine a mounted directory lies.
"""

import base64
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.interop.endpoints import echo, endpoint
from tests.support.hosted_certificates import renewed, terms
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, static_pod
from tests.support.tunnel_pair import Daemon, free_port, http_get, program, wait_until

from umbilical.cli.tree_files import write_tree
from umbilical.hosted.objects.render import render
from umbilical.hosted.objects.spec import (
    AggregatedApi,
    HostedSpec,
    KubeApiserver,
    Pki,
    Publishing,
    ServerProgram,
    Strategy,
    Workload,
)
from umbilical.hosted.pki.certificate_set import ListenerNames
from umbilical.hosted.pki.table import AGENT, CLIENT, CONTROL_PLANE_AGENT, HostedLeaf, Signers

pytestmark = pytest.mark.real("curl")
REFUSED = "000"
"""What curl prints where no answer came: the handshake failed."""
SERVERS = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]


class Rendered:
    """A rendered static pod and its agents, started from what was written."""

    def __init__(self, folder: Path, whose: str, layout: Signers) -> None:
        self.folder, self.whose = folder, whose
        self.frontend, self.agents, self.health = free_port(), free_port(), free_port()
        self.spec = _spec(whose, self.agents, layout)
        names = ListenerNames(self.spec.frontend_names, self.spec.agent_listener_names)
        self.certificates = renewed(None, names, wanted=terms(signers=layout)).set
        write_tree(render(self.spec, self.certificates, as_bytes(static_pod())), folder / "out", overwrite=False)
        self.pki = folder / "pki"
        self.pki.mkdir()
        for name, content in self.certificates.files().items():
            (self.pki / name).write_bytes(content)

        self.server = self._server()
        self.node_agent = self._agent("hosted/daemonset-konnectivity-agent.yaml", "node")
        self.control_plane_agent = self._agent("management/deployment-konnectivity-agent.yaml", "control-plane")

    def _server(self) -> Daemon:
        pod = self._read("node/etc/kubernetes/manifests/kube-apiserver.yaml")
        volumes = {one["name"]: one["hostPath"]["path"] for one in pod["spec"]["volumes"] if "hostPath" in one}
        sidecar = container(pod, "konnectivity-server")
        places = {
            mount["mountPath"]: f"{self.folder}/out/node{volumes[mount['name']]}"
            for mount in sidecar["volumeMounts"]
            if mount["name"] in volumes
        }
        ports = {"server": self.frontend, "agent": self.agents, "health": self.health, "admin": free_port()}
        own = [f"--{name}-port={port}" for name, port in ports.items()]
        own += [f"--{name}-bind-address=127.0.0.1" for name in ports]
        return self._daemon("proxy-server", "server", [*_moved(sidecar["args"], places), *own])

    def _agent(self, path: str, name: str) -> Daemon:
        """Take an agent of a rendered workload; what it mounts is taken from rendered objects of its own cluster."""
        workload = self._read(path)
        pod = workload["spec"]["template"]["spec"]
        places = {
            mount["mountPath"]: str(self._unpacked(path.partition("/")[0], name, mount["name"], pod["volumes"]))
            for mount in pod["containers"][0]["volumeMounts"]
        }
        own = ["--proxy-server-host=127.0.0.1", f"--proxy-server-port={self.agents}"]
        own += [f"--health-server-port={free_port()}", f"--admin-server-port={free_port()}", "--sync-interval=200ms"]
        own += ["--allow-destination=127.0.0.0/8"] if self.whose == "ours" else []  # endpoints are on loopback here
        return self._daemon("proxy-agent", name, [*_moved(pod["containers"][0]["args"], places), *own])

    def status(self, leaf: HostedLeaf, address: str) -> str:
        """Return what the frontend answers to a CONNECT that shows this certificate."""
        command = ["curl", "--silent", "--max-time", "30", "-p", "-x", f"https://127.0.0.1:{self.frontend}"]
        command += ["--proxy-cacert", str(self.pki / f"{_frontend_signer(self.spec)}.crt")]
        command += ["--proxy-cert", str(self.pki / f"{leaf.id}.crt"), "--proxy-key", str(self.pki / f"{leaf.id}.key")]
        command += ["--output", "/dev/null", "--write-out", "%{http_connect}", f"http://{address}/"]
        found = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
        return found.stdout.strip()

    def _daemon(self, name: str, title: str, flags: list[str]) -> Daemon:
        return Daemon([str(program(self.whose, name)), *flags], self.folder / f"{title}.log")

    def _read(self, path: str) -> Any:
        return yaml.safe_load((self.folder / "out" / path).read_bytes())

    def _unpacked(self, cluster: str, agent: str, name: str, volumes: list[dict[str, Any]]) -> Path:
        volume = next(one for one in volumes if one["name"] == name)
        folder = self.folder / f"{agent}-{name}"
        folder.mkdir()
        if "secret" in volume:
            data = self._read(f"{cluster}/secret-{volume['secret']['secretName']}.yaml")["data"]
            files = {key: base64.b64decode(value) for key, value in data.items()}
        else:
            data = self._read(f"{cluster}/configmap-{volume['configMap']['name']}.yaml")["data"]
            files = {one["path"]: data[one["key"]].encode() for one in volume["configMap"]["items"]}
        for key, content in files.items():
            (folder / key).write_bytes(content)
        return folder


def _spec(whose: str, agent_port: int, layout: Signers) -> HostedSpec:
    return hosted_spec(
        server=ServerProgram.UMBILICAL if whose == "ours" else ServerProgram.UPSTREAM,
        replicas=1,
        publishing=Publishing(Strategy.LOAD_BALANCER, "127.0.0.1", agent_port),
        kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="kube-apiserver.yaml"),
        aggregated_apis=(AggregatedApi("openshift-apiserver", (ipaddress.ip_address("127.0.0.2"),)),),
        pki=Pki(signers=layout),
        components=(),
    )


def _moved(flags: list[str], places: dict[str, str]) -> list[str]:
    """Translate mounted paths; the longest one that fits, since they may lie in each other."""
    found = []
    for flag in flags:
        name, _, value = flag.partition("=")
        place = max((one for one in places if value.startswith(f"{one}/")), key=len, default=None)
        found.append(flag if place is None else f"{name}={places[place]}{value.removeprefix(place)}")
    return found


def _frontend_signer(spec: HostedSpec) -> str:
    return "konnectivity-server-serving-signer" if spec.pki.signers is Signers.SEPARATE else "konnectivity-signer"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def started(whose: str, layout: Signers = Signers.SEPARATE) -> Rendered:
            rendered = Rendered(tmp_path, whose, layout)
            for daemon in (rendered.server, rendered.node_agent, rendered.control_plane_agent):
                stack.callback(daemon.kill)
                daemon.start()
            wait_until(lambda: http_get(f"http://127.0.0.1:{rendered.health}/healthz")[0] == 200, "a healthy server")
            return rendered

        yield started


@pytest.mark.parametrize("whose", SERVERS)
def test_what_is_rendered_carries_tunnels_by_both_kinds_of_agents(start: Any, whose: str) -> None:
    rendered = start(whose)
    with endpoint(echo) as address:
        wait_until(lambda: rendered.status(CLIENT, address) == "200", "a tunnel through the agent on a node")
        rendered.node_agent.kill()
        beside = address.replace("127.0.0.1", "127.0.0.2")
        # Nobody listens there: 502 is the word of the agent that has tried, the only one that is left.
        wait_until(lambda: rendered.status(CLIENT, beside) == "502", "the control-plane agent's answer")
        wait_until(lambda: rendered.status(CLIENT, address) not in ("200", "502"), "no agent for a node's address")


@pytest.mark.parametrize("whose", SERVERS)
@pytest.mark.parametrize("agent", [AGENT, CONTROL_PLANE_AGENT], ids=lambda leaf: leaf.id)
def test_an_agents_certificate_opens_nothing_on_the_rendered_frontend(
    start: Any, whose: str, agent: HostedLeaf
) -> None:
    rendered = start(whose)
    with endpoint(echo) as address:
        wait_until(lambda: rendered.status(CLIENT, address) == "200", "a tunnel for a client")
        assert rendered.status(agent, address) == REFUSED


def test_with_a_single_signer_our_server_still_tells_agents_from_clients(start: Any) -> None:
    rendered = start("ours", Signers.SINGLE)
    with endpoint(echo) as address:
        wait_until(lambda: rendered.status(CLIENT, address) == "200", "a tunnel for a client")
        assert rendered.status(AGENT, address) == "403"
