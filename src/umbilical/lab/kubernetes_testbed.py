"""The testbed with the real kube-apiserver, etcd, controllers and scheduler as static pods of the bootstrap node."""

import json
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET
from umbilical.bootstrap.render.kube_apiserver import EGRESS_PATH, read_static_pod, with_egress_selector
from umbilical.bootstrap.render.render import KUBE_APISERVER_POD
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST, Mode, Shape, for_shape
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import api_calls, objects
from umbilical.lab.control_plane import ADMIN_KUBECONFIG, KUBELET_KUBECONFIG, kubelet_node_assets, render_control_plane
from umbilical.lab.runner import MANIFESTS
from umbilical.lab.testbed import BOOTSTRAP, Testbed, WebhookVerdict
from umbilical.lab.transcript import CallResult
from umbilical.manifests.control_plane_spec import ControlPlaneImages, ControlPlaneSpec, url
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.control_plane_set import (
    ControlPlaneNames,
    ControlPlaneSet,
    NodeNames,
    first_addresses,
    make_control_plane_set,
)
from umbilical.pki.profiles import KeyType

if TYPE_CHECKING:
    from umbilical.lab.lab import CompletedCommand

IMAGES: Final = ControlPlaneImages.tagged("localhost", "lab")
ETCD_PORT: Final = 2379
API_PORT: Final = 6443
READY_SECONDS: Final = 120.0
TEARDOWN_SECONDS: Final = 120.0
CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler")


class Plane(Enum):
    """A kube-apiserver; the value is its node."""

    BOOTSTRAP = "bootstrap"
    PRODUCTION = "master-0"


class KubernetesTestbed(Testbed):
    _authorities: ControlPlaneSet | None = None

    @property
    def has_production(self) -> bool:
        return any(node.name == Plane.PRODUCTION.value for node in self.lab.topology.nodes)

    @property
    def caller(self) -> str:
        return "the bootstrap kube-apiserver"

    @property
    def cutter(self) -> str:
        return "umbilical bootstrap teardown"

    def start_control_plane(self) -> None:
        self._authorities = make_control_plane_set(
            self.certificate_names(), datetime.now(UTC), key_type=KeyType.ECDSA_P256
        )
        self.write_files(BOOTSTRAP, render_control_plane(self.plane_spec(Plane.BOOTSTRAP), self._authorities))
        self.runner.start(self.lab, BOOTSTRAP, None)
        version = self._wait_ready(Plane.BOOTSTRAP)
        self.transcript.saw(f"kube-apiserver {version} is ready, with etcd, controllers and scheduler")

    def start_nodes(self) -> None:
        for node in self.members:
            server = url(self.lab.topology.bootstrap.address, API_PORT)
            self.write_files(node.name, kubelet_node_assets(node.name, server, self._set))
            self.runner.start(self.lab, node.name, KUBELET_KUBECONFIG)
        names = self.wait("all nodes to be Ready", self._look_at_nodes, READY_SECONDS)
        self.transcript.saw(f"Ready: {', '.join(names)}")

    def start_webhook(self) -> str:
        service = objects.make_service(self.lab.topology)
        self.apply_webhook(service)
        return service.node

    def apply_webhook(self, service: objects.ServiceObjects) -> str:
        """Apply the Service, wait for its endpoint, then register the webhook; return the endpoint's address."""
        self.apply(*service.objects)
        address = self.wait("the webhook's endpoint", self.endpoint, READY_SECONDS)
        self.apply(service.webhook)
        self.transcript.saw(f"{objects.NAMESPACE}/{objects.NAME} on {service.node}, endpoint {address}")
        return address

    def endpoint(self, service: str = objects.NAME) -> str:
        """Return the endpoint address of a Service of the lab. Raises NotYet: no endpoint is ready."""
        label = f"kubernetes.io/service-name={service}"
        shown = self.kubectl("-n", objects.NAMESPACE, "get", "endpointslices", "-l", label, "-o=json")
        if shown.exit_code != 0:
            raise NotYet(" ".join(shown.stderr.decode(errors="replace").split()))
        found = objects.ready_endpoints(json.loads(shown.text))
        if not found:
            raise NotYet("no endpoint is ready")
        return found[0]

    def start_production(self) -> None:
        self.write_files(Plane.PRODUCTION.value, render_control_plane(self.plane_spec(Plane.PRODUCTION), self._set))
        version = self._wait_ready(Plane.PRODUCTION)
        self.transcript.saw(f"kube-apiserver {version} on {Plane.PRODUCTION.value}, without an egress configuration")

    def call_webhook(self, verdict: str, *, production: bool = False) -> WebhookVerdict:
        plane = Plane.PRODUCTION if production else Plane.BOOTSTRAP
        done = self.kubectl("create", "--dry-run=server", "-f", "-", stdin=objects.judged(verdict), plane=plane)
        if done.exit_code == 0:
            return WebhookVerdict(CallResult.ALLOWED, done.text.strip())
        text = " ".join(done.stderr.decode(errors="replace").split())
        return WebhookVerdict(CallResult.DENIED if "denied the request" in text else CallResult.UNREACHABLE, text)

    def call_times(self, count: int) -> list[float]:
        done = self.lab.exec(BOOTSTRAP, api_calls.command("times", str(count))).check()
        return [float(seconds) for seconds in json.loads(done.text)]

    def use_tunnel(self) -> None:
        plain = self.lab.read(BOOTSTRAP, KUBE_APISERVER_POD)
        self.change_apiserver(self.tunnel.kube_apiserver_pod(plain))
        self.transcript.saw(f"--egress-selector-config-file={EGRESS_PATH}")

    def use_servers(self, egress: bytes) -> None:
        """Configure kube-apiserver with this egress file: HTTPConnect over TCP."""
        self.lab.write(BOOTSTRAP, EGRESS_PATH, egress)
        spec = for_shape(Shape.KUBERNETES, mode=Mode.HTTP_CONNECT, socket_directory=BOOTSTRAP_CONFIGS_ON_HOST)
        plain = self.lab.read(BOOTSTRAP, KUBE_APISERVER_POD)
        self.change_apiserver(yaml_bytes(with_egress_selector(read_static_pod(plain), spec)))

    def change_apiserver(self, manifest: bytes) -> None:
        """Replace the bootstrap kube-apiserver's manifest, and wait until the new one is ready."""
        plain = self.lab.read(BOOTSTRAP, KUBE_APISERVER_POD)
        before = self._apiserver_pid()
        self.lab.write(BOOTSTRAP, KUBE_APISERVER_POD, manifest)
        if manifest != plain:
            self.wait("kube-apiserver to restart", lambda: self._look_for_another(before), READY_SECONDS)
        self._wait_ready(Plane.BOOTSTRAP)

    def start_agents(self) -> None:
        self.apply(*self.tunnel.objects)

    def teardown(self) -> str:
        shape = ["--shape", "seed"] if self.options.shape is Shape.SEED else []
        command = [
            "umbilical",
            "bootstrap",
            "teardown",
            f"--kubeconfig={ADMIN_KUBECONFIG}",
            "--local",
            "--timeout=90s",
            *shape,
        ]
        done = self.lab.exec(BOOTSTRAP, command, timeout_seconds=TEARDOWN_SECONDS).check()
        return done.text.strip()

    def leftovers(self) -> list[str]:
        namespace = self.tunnel.spec.namespace
        wanted = [("daemonset", AGENT_NAME), ("secret", AGENT_SECRET)]
        found = []
        for kind, name in wanted:
            shown = self.kubectl("-n", namespace, "get", kind, name, "--ignore-not-found", "-o=name").check()
            found += shown.text.split()
        if self.tunnel.spec.owns_namespace:
            found += self.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o=name").check().text.split()
        return found + self.node_leftovers()

    def retire_bootstrap(self) -> None:
        for name in ("kube-apiserver", *CONTROLLERS):
            self.lab.remove(BOOTSTRAP, f"{MANIFESTS}/{name}.yaml")

        def look() -> None:
            if self._apiserver_pid() is not None:
                raise NotYet("it is still running")

        self.wait("the bootstrap kube-apiserver to end", look, READY_SECONDS)

    def kubectl(
        self, *arguments: str, stdin: object = None, plane: Plane = Plane.BOOTSTRAP, timeout_seconds: float = 60.0
    ) -> "CompletedCommand":
        """Run kubectl as admin on the node of a kube-apiserver; `stdin` is an object or a List."""
        content = None if stdin is None else json.dumps(stdin).encode()
        command = ["kubectl", f"--kubeconfig={ADMIN_KUBECONFIG}", *arguments]
        return self.lab.exec(plane.value, command, stdin=content, timeout_seconds=timeout_seconds)

    def apply(self, *wanted: dict[str, Any], plane: Plane = Plane.BOOTSTRAP) -> None:
        """Apply objects in this order. Raises LabError: kubectl failed."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(wanted)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=listed, plane=plane).check()

    @property
    def _set(self) -> ControlPlaneSet:
        if self._authorities is None:
            why = "the private keys of its CAs were not saved"
            raise LabError("UMB851", "no node was added to this control plane", why, "start over: umbilical lab down")
        return self._authorities

    def certificate_names(self) -> ControlPlaneNames:
        topology = self.lab.topology
        addresses = {node.name: tuple(str(one.ip) for one in node.addresses) for node in topology.nodes}
        planes = tuple(address for plane in Plane for address in addresses.get(plane.value, ()))
        return ControlPlaneNames(
            node_ips=planes,
            service_ips=first_addresses(topology.service_networks),
            etcd_ips=addresses[BOOTSTRAP],
            nodes=tuple(NodeNames(name, found) for name, found in addresses.items()),
        )

    def plane_spec(self, plane: Plane) -> ControlPlaneSpec:
        topology = self.lab.topology
        is_bootstrap = plane is Plane.BOOTSTRAP
        return ControlPlaneSpec(
            node_name=plane.value,
            node_ip=topology.node(plane.value).addresses[0].ip,
            service_networks=topology.service_networks,
            pod_networks=topology.pod_networks,
            images=IMAGES,
            etcd_urls=() if is_bootstrap else (url(topology.bootstrap.address, ETCD_PORT),),
            has_etcd=is_bootstrap,
            has_controllers=is_bootstrap,
            is_throwaway=True,
        )

    def _wait_ready(self, plane: Plane) -> str:
        def look() -> str:
            ready = self.kubectl("get", "--raw=/readyz", "--request-timeout=5s", plane=plane)
            if ready.exit_code != 0:
                raise NotYet(" ".join(ready.stderr.decode(errors="replace").split()))
            # kube-apiserver creates these a moment after it reports ready.
            made = self.kubectl("get", "namespace", "default", "kube-system", "-o=name", plane=plane)
            if made.exit_code != 0:
                raise NotYet("its default namespaces do not exist yet")
            return str(json.loads(self.kubectl("get", "--raw=/version", plane=plane).check().text)["gitVersion"])

        return self.wait(f"kube-apiserver on {plane.value}", look, READY_SECONDS)

    def _look_at_nodes(self) -> list[str]:
        shown = self.kubectl("get", "nodes", "-o=json")
        if shown.exit_code != 0:
            raise NotYet(" ".join(shown.stderr.decode(errors="replace").split()))
        ready = [node["metadata"]["name"] for node in json.loads(shown.text)["items"] if _is_ready(node)]
        missing = sorted({node.name for node in self.members} - set(ready))
        if missing:
            raise NotYet(f"not Ready: {', '.join(missing)}")
        return ready

    def _apiserver_pid(self) -> int | None:
        pod = self.find_pod(BOOTSTRAP, "kube-apiserver")
        return None if pod is None else pod.containers[0].pid

    def _look_for_another(self, before: int | None) -> int:
        now = self._apiserver_pid()
        if now is None or now == before:
            raise NotYet("it has not started" if now is None else "the old process is still running")
        return now


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
