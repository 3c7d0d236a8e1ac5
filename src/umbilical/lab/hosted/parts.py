"""The parts of a hosted control plane in a lab: placement on nodes, rendered files, and commands.

Certificates and objects are those of `umbilical hosted render`, with a signer for each listener.
"""

import base64
import dataclasses
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.hosted.objects import names
from umbilical.hosted.objects.render import hosted_objects, management_objects
from umbilical.hosted.objects.server import strategic_patch
from umbilical.hosted.objects.spec import (
    Agents,
    AggregatedApi,
    ApiGroup,
    HostedImages,
    HostedNetworks,
    HostedSpec,
    Monitoring,
    Publishing,
    Strategy,
)
from umbilical.hosted.pki.certificate_set import CertificateSettings, HostedSet, ListenerNames, renew
from umbilical.hosted.pki.table import HostedLeaf
from umbilical.lab.hosted.topology import plan_hosted
from umbilical.lab.images import UMBILICAL
from umbilical.lab.kubernetes_testbed import API_PORT
from umbilical.lab.objects import LIFETIME, NAME, NAMESPACE, PLAIN_PORT, PORT, SERVICE_PORT
from umbilical.lab.proxy_client import ProxyProtocol, ProxyRoute
from umbilical.lab.service_answers import GROUP, VERSION
from umbilical.lab.topology import Topology
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, server_profile
from umbilical.pki.tunnel_set import DAY

Object = Mapping[str, Any]


def find(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Find an object. Raises LabError: it was not rendered."""
    for one in objects:
        if (one["kind"], one["metadata"]["name"]) == (kind, name):
            return one
    why = "the rendered objects do not contain it"
    raise LabError("UMB859", f"found no {kind} {name}", why, "check the output of: umbilical hosted render")


def container(pod: Object, name: str) -> Object:
    return next(one for one in pod["containers"] if one["name"] == name)


def command(of: Object) -> list[str]:
    """Return a container's command; a node's PATH has the program under the same name."""
    return [posixpath.basename(of["command"][0]), *of["command"][1:], *of.get("args", [])]


def mounted_files(pod: Object, of: Object, objects: Iterable[Object]) -> dict[str, bytes]:
    """Return the files that a container mounts from Secrets and ConfigMaps, by path."""
    known, volumes = list(objects), {volume["name"]: volume for volume in pod["volumes"]}
    files: dict[str, bytes] = {}
    for mount in of.get("volumeMounts", []):
        for name, (content, _) in volume_files(volumes[mount["name"]], known).items():
            files[posixpath.join(mount["mountPath"], name)] = content
    return files


def volume_files(volume: Object, objects: Sequence[Object]) -> dict[str, tuple[bytes, int]]:
    """Return content and mode of the files in a volume; none if it is not of Secrets and ConfigMaps.

    Raises LabError: an object was not rendered.
    """
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    # The default of Kubernetes.
    mode = next((of["defaultMode"] for of in volume.values() if "defaultMode" in of), 0o644)
    found = {path: content for source in sources for path, content in _source_files(source, objects).items()}
    return {path: (content, mode) for path, content in found.items()}


def _source_files(source: Object, objects: Sequence[Object]) -> dict[str, bytes]:
    kind = next((kind for kind in ("secret", "configMap") if kind in source), None)
    if kind is None or source[kind].get("optional"):
        return {}
    of = source[kind]
    # A volume and a projection have different keys for a Secret's name.
    name = of.get("secretName") or of["name"]
    found = find(objects, "Secret" if kind == "secret" else "ConfigMap", name)["data"]
    data = {key: base64.b64decode(text) if kind == "secret" else text.encode() for key, text in found.items()}
    # Without items every key is a file.
    items = of.get("items") or [{"key": key, "path": key} for key in data]
    return {item["path"]: data[item["key"]] for item in items}


SERVER_NODES: Final = ("management-0", "management-1", "management-2")
CLIENT_NODE: Final = "management-3"
"""Node of the control plane's agent, both proxies and their clients."""
API_NODE: Final = "management-4"
"""Node of the aggregated API."""
API_NAME: Final = "lab-api"
API_FOLDER: Final = "/etc/lab-api"
DNS_NODE: Final = "worker-1"
PUBLISHED: Final = "konnectivity.lab.example"
"""Name of the servers for nodes; it has several addresses, like a cloud load balancer."""
SERVICE_NAME: Final = f"{NAME}.{NAMESPACE}.svc.cluster.local"
"""Only the hosted cluster's DNS resolves it."""
SERVICE_AUTHORITY: Final = "/etc/lab-service/ca.crt"
SOCKS_PORT: Final = 1080
HTTPS_PORT: Final = 3128
SOCKS_HEALTH_PORT: Final = 2042
HTTPS_HEALTH_PORT: Final = 2043
DNS_PORT: Final = 53


@dataclass(frozen=True)
class HostedPart:
    """A program of the control plane, with its files."""

    command: list[str]
    files: dict[str, bytes]


@dataclass(frozen=True)
class AggregatedApiServer:
    """The aggregated API server with its certificates, independent of the tunnel's."""

    authority: bytes
    pair: KeyPair
    node: str

    @property
    def part(self) -> HostedPart:
        files = {f"{API_FOLDER}/tls.crt": self.pair.certificate, f"{API_FOLDER}/tls.key": self.pair.key}
        pair = ["--certificate", f"{API_FOLDER}/tls.crt", "--key", f"{API_FOLDER}/tls.key"]
        # Open connections of kube-apiserver would delay a draining server by a minute or more.
        how = ["--listen", f":{SERVICE_PORT}", "--node-name", self.node, "--close-connections"]
        return HostedPart(["lab-service", *how, *pair], files)


@dataclass(frozen=True)
class HostedParts:
    spec: HostedSpec
    pki: HostedSet
    api: AggregatedApiServer

    @property
    def management_objects(self) -> list[dict[str, Any]]:
        return management_objects(self.spec, self.pki)

    @property
    def agent_objects(self) -> list[dict[str, Any]]:
        """Objects of the hosted cluster for its nodes."""
        return [one for one in self._hosted_objects if not _is_of_api(one)]

    @property
    def api_objects(self) -> list[dict[str, Any]]:
        """Objects of the hosted cluster for the aggregated API."""
        return [one for one in self._hosted_objects if _is_of_api(one)]

    @property
    def _hosted_objects(self) -> list[dict[str, Any]]:
        return hosted_objects(self.spec, self.pki)

    @property
    def server(self) -> HostedPart:
        """The sidecar from the patch for kube-apiserver's Deployment."""
        return self._part(strategic_patch(self.spec)["spec"]["template"]["spec"], names.SERVER)

    @property
    def control_plane_agent(self) -> HostedPart:
        deployment = find(self.management_objects, "Deployment", names.AGENT)
        return self._part(deployment["spec"]["template"]["spec"], names.AGENT)

    def _part(self, pod: Mapping[str, Any], name: str) -> HostedPart:
        of = container(pod, name)
        return HostedPart(command(of), mounted_files(pod, of, self.management_objects))

    @property
    def proxy_files(self) -> dict[str, bytes]:
        """Files mounted into the proxies."""
        ca = find(self.management_objects, "ConfigMap", names.CA_BUNDLE)["data"][names.CA_KEY]
        pair = find(self.management_objects, "Secret", names.SECRET_CLIENT)["data"]
        files = {f"{names.PROXY_CLIENT_DIRECTORY}/{name}": base64.b64decode(text) for name, text in pair.items()}
        return {f"{names.PROXY_CA_DIRECTORY}/{names.CA_KEY}": ca.encode(), **files}

    def renewed(self, leaf: HostedLeaf, now: datetime) -> "HostedParts":
        """Replace one certificate and its key."""
        others = {id_: pair for id_, pair in self.pki.leaves.items() if id_ != leaf.id}
        rest = dataclasses.replace(self.pki, leaves=others)
        return dataclasses.replace(self, pki=_renew(self.spec, rest, now))


def topology() -> Topology:
    openings = {API_PORT: ("bootstrap",), names.AGENT_PORT: SERVER_NODES}
    return plan_hosted(management=5, workers=2, openings=openings)


def make_parts(lab: Topology, now: datetime, image: str = UMBILICAL, api_node: str = API_NODE) -> HostedParts:
    """Create all certificates, and the spec that everything is rendered from."""
    authority = Authority.create("lab-api-ca", now, LIFETIME, KeyType.ECDSA_P256)
    called = [f"{API_NAME}.{names.AGGREGATED_NAMESPACE}.svc"]
    pair = authority.issue(server_profile(API_NAME, called, KeyType.ECDSA_P256), now, LIFETIME)
    api = AggregatedApiServer(authority.certificate_pem, pair, api_node)
    spec = _spec(lab, api, image)
    return HostedParts(spec, _renew(spec, None, now), api)


def _spec(lab: Topology, api: AggregatedApiServer, image: str) -> HostedSpec:
    address = lab.node(api.node).addresses[0].ip
    return HostedSpec(
        name="lab",
        namespace="clusters-lab",
        images=HostedImages(image, image, image),
        publishing=Publishing(Strategy.LOAD_BALANCER, PUBLISHED, names.AGENT_PORT),
        networks=HostedNetworks(lab.pod_networks, lab.service_networks, lab.machine_networks),
        replicas=len(SERVER_NODES),
        agents=Agents(control_plane_replicas=1),
        aggregated_apis=(AggregatedApi(API_NAME, (address,), (ApiGroup(GROUP, VERSION),)),),
        aggregated_authority=api.authority.decode(),
        # A plain kube-apiserver does not serve the monitoring kinds.
        monitoring=Monitoring(enabled=False),
    )


def _renew(spec: HostedSpec, existing: HostedSet | None, now: datetime) -> HostedSet:
    places = ListenerNames(spec.frontend_names, spec.agent_listener_names)
    terms = CertificateSettings(key_type=KeyType.ECDSA_P256, authority_lifetime=DAY, lifetime=DAY)
    return renew(existing, places, terms, now, Authority).set


def _is_of_api(one: Mapping[str, Any]) -> bool:
    return bool(one["kind"] == "APIService" or one["metadata"].get("namespace") == names.AGGREGATED_NAMESPACE)


def proxy_command(kind: str, listen: int, health: int, servers: Sequence[str], resolving: Sequence[str]) -> list[str]:
    """Return the command of a proxy. `kind` is socks5 or https; servers are tried in order."""
    pair = names.PROXY_CLIENT_DIRECTORY
    tried = [word for address in servers for word in ("--server", f"{address}:{names.FRONTEND_PORT}")]
    return [
        *("umbilical", "proxy", kind, "--listen", f"127.0.0.1:{listen}", "--health", f"127.0.0.1:{health}", *tried),
        *("--server-name", names.SERVER_LOCAL, "--ca", f"{names.PROXY_CA_DIRECTORY}/{names.CA_KEY}"),
        *("--cert", f"{pair}/tls.crt", "--key", f"{pair}/tls.key", *resolving),
    ]


def dns_command(address: str, answers: Mapping[str, str]) -> list[str]:
    """Return the command of a DNS server for exactly these names."""
    records = [f"--host-record={name},{answer}" for name, answer in answers.items()]
    return [
        # Without user and group: a user namespace may not map others.
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user="),
        *("--group=", f"--port={DNS_PORT}", f"--listen-address={address}", "--bind-interfaces", "--pid-file="),
        *("--log-facility=-", "--local=/./", *records),
    ]


def ways() -> dict[str, ProxyRoute]:
    """Return the routes to the service in the pod through the proxies, by name."""
    socks, https, authority = ("127.0.0.1", SOCKS_PORT), ("127.0.0.1", HTTPS_PORT), Path(SERVICE_AUTHORITY)
    return {
        "socks5": ProxyRoute(ProxyProtocol.SOCKS5, socks, SERVICE_NAME, PORT, authority),
        "connect": ProxyRoute(ProxyProtocol.CONNECT, https, SERVICE_NAME, PORT, authority),
        "plain": ProxyRoute(ProxyProtocol.PLAIN, https, SERVICE_NAME, PLAIN_PORT),
    }
