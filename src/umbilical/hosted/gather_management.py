"""Looks at a control plane's namespace in the management cluster: pods, Services, policies, certificates."""

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import CONFIG_MAP, POD, SECRET, Kind
from umbilical.hosted.facts import CertificateFact, ManagementFacts
from umbilical.hosted.objects import names
from umbilical.hosted.objects.kube_apiserver_manifest import flag_value
from umbilical.hosted.pki.table import AGENT, CLIENT, CLUSTER, CONTROL_PLANE_AGENT, SERVER, Leaf, Trust
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError

SERVICE: Final = Kind("Service", "/api/v1", "services")
DEPLOYMENT: Final = Kind("Deployment", "/apis/apps/v1", "deployments")
NETWORK_POLICY: Final = Kind("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies")
_BUNDLE_KEYS: Final = {
    Trust.CLIENTS: names.CA_KEY,
    Trust.AGENTS: names.CLUSTER_CA_KEY,
    Trust.FRONTEND: names.CLIENT_CA_KEY,
    Trust.AGENT_LISTENER: names.AGENT_CA_KEY,
}


async def look_at_namespace(client: ApiClient, namespace: str) -> ManagementFacts:
    """Raises ClusterError."""
    listed = await objects.list_objects(client, SERVICE, namespace)
    services = {str(objects.metadata(item).get("name")): item for item in listed}
    return ManagementFacts(
        server_pods=tuple(await _server_pods(client, namespace, services)),
        services=services,
        policies=tuple(await objects.list_objects(client, NETWORK_POLICY, namespace)),
        control_plane_agent=await objects.get(client, DEPLOYMENT, names.AGENT, namespace),
    )


async def get_bundle(client: ApiClient, namespace: str) -> Json | None:
    return await objects.get(client, CONFIG_MAP, names.CA_BUNDLE, namespace)


async def look_at_certificates(client: ApiClient, namespace: str, bundle: Json | None) -> tuple[CertificateFact, ...]:
    """Raises ClusterError. Keys come with them, and are not looked at."""
    facts = []
    for leaf in (SERVER, CLUSTER, CLIENT, CONTROL_PLANE_AGENT, AGENT):
        secret = await objects.get(client, SECRET, leaf.id, namespace)
        # HyperShift has no Secret of the fourth name here, and ours has none of the fifth.
        if secret is not None or leaf in (SERVER, CLUSTER, CLIENT):
            facts.append(certificate_fact(f"{namespace}/{leaf.id}", secret, authorities(bundle, leaf)))
    return tuple(facts)


def certificate_fact(name: str, secret: Json | None, trusted: tuple[Certificate, ...] | None) -> CertificateFact:
    if secret is None:
        return CertificateFact(name, None, "there is no such Secret")
    encoded = objects.field(secret, "data", "tls.crt")
    try:
        leaf = read_certificates(base64.b64decode(str(encoded or ""), validate=True))[0]
    except (BundleError, binascii.Error, ValueError) as error:
        return CertificateFact(name, None, f"its tls.crt cannot be read: {error}")
    return CertificateFact(name, leaf, authorities=trusted)


def authorities(bundle: Json | None, leaf: Leaf) -> tuple[Certificate, ...] | None:
    """By which CAs the other side knows this certificate: HyperShift's bundle has one key for all."""
    data = objects.field(bundle or {}, "data")
    content = data.get(_BUNDLE_KEYS[leaf.verified_by]) or data.get(names.CA_KEY) if isinstance(data, dict) else None
    try:
        return tuple(read_certificates(str(content).encode())) if content else None
    except BundleError:
        return None


def identifiers(deployment: Json) -> list[str]:
    """The addresses and names that a control-plane agent claims; an empty one is in the list as it is."""
    containers = objects.items(objects.field(deployment, "spec", "template", "spec", "containers"))
    values = [value for one in containers if (value := flag_value(one, "--agent-identifiers")) is not None]
    pairs = [pair.partition("=") for value in values for pair in value.split("&") if pair]
    return [value for kind, _, value in pairs if kind in ("ipv4", "ipv6", "host")]


def service_port(services: Iterable[Json], address: str) -> int:
    """The port of the Service that has this address; 443 as aggregated APIs have it otherwise."""
    for service in services:
        if address in (objects.field(service, "spec", "clusterIPs") or [objects.field(service, "spec", "clusterIP")]):
            ports = objects.items(objects.field(service, "spec", "ports"))
            return int(ports[0]["port"]) if ports else 443
    return 443


def health_port(pod: Json) -> int:
    return _port(pod, "--health-port", names.HEALTH_PORT)


def frontend_port(pod: Json) -> int:
    return _port(pod, "--server-port", names.FRONTEND_PORT)


def container(pod: Json) -> Json | None:
    """The server in a pod, if there is one."""
    found = objects.items(objects.field(pod, "spec", "containers"))
    return next((one for one in found if one.get("name") == names.SERVER), None)


def pod_name(pod: Json) -> str:
    return str(objects.metadata(pod).get("name"))


def _port(pod: Json, flag: str, usual: int) -> int:
    value = flag_value(container(pod) or {}, flag) or ""
    return int(value) if value.isascii() and value.isdigit() else usual


async def _server_pods(client: ApiClient, namespace: str, services: dict[str, Json]) -> list[Json]:
    """Where the Service for clients leads to; those are kube-apiserver's pods, whatever their labels are."""
    selector = objects.field(services.get(names.SERVER_LOCAL, {}), "spec", "selector") or {"app": names.KUBE_APISERVER}
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = await objects.list_objects(client, POD, namespace, labels)
    return [pod for pod in pods if container(pod) is not None]
