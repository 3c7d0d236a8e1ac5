"""Services of the servers, their Route, NodePort or LoadBalancer, NetworkPolicies, and aggregated APIs as the hosted
cluster sees them. Certificates control access; policies must not block agents.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.spec import AggregatedApi, ApiGroup, HostedSpec, Strategy
from umbilical.manifests.objects import Object, manifest

_TYPES: Final = {
    Strategy.ROUTE: "ClusterIP",
    Strategy.NODE_PORT: "NodePort",
    Strategy.LOAD_BALANCER: "LoadBalancer",
}
_EXTERNAL_DNS: Final = "external-dns.alpha.kubernetes.io/hostname"


def services(spec: HostedSpec) -> list[Object]:
    return [frontend_service(spec), agent_service(spec)]


def frontend_service(spec: HostedSpec) -> Object:
    ports = [_port("clients", names.FRONTEND_PORT)]
    # A single kube-apiserver becomes ready only with webhooks that it reaches through this Service. With several the
    # ready ones serve: not-ready ones include those that are draining.
    return _service(spec, names.SERVER_LOCAL, ports, publishNotReadyAddresses=spec.replicas == 1)


def agent_service(spec: HostedSpec) -> Object:
    publishing = spec.publishing
    ports = [_port("agents", names.AGENT_PORT)]
    if publishing.strategy is Strategy.NODE_PORT:
        ports[0]["nodePort"] = publishing.port
    elif publishing.strategy is Strategy.LOAD_BALANCER and publishing.port != names.AGENT_PORT:
        # The control-plane agent still dials the default port.
        ports.append(_port("agents-outside", publishing.port))
    body: dict[str, Any] = {"type": _TYPES[publishing.strategy]}
    # Without it (HyperShift) a new server has no agents until kube-apiserver is ready, which may need them.
    return _service(spec, names.SERVER, ports, **body, publishNotReadyAddresses=True)


def routes(spec: HostedSpec) -> list[Object]:
    """Passthrough: the server must see the agents' certificates."""
    if spec.publishing.strategy is not Strategy.ROUTE:
        return []
    # Round robin, so that an agent's next connection reaches another server.
    annotations = {"haproxy.router.openshift.io/balance": "roundrobin"}
    head = metadata(spec, names.SERVER, spec.namespace, spec.publishing.labels, annotations)
    body = {
        "host": spec.publishing.host,
        "port": {"targetPort": names.AGENT_PORT},
        "tls": {"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"},
        "to": {"kind": "Service", "name": names.SERVER, "weight": 100},
        "wildcardPolicy": "None",
    }
    return [manifest("route.openshift.io/v1", "Route", head, spec=body)]


def _service(spec: HostedSpec, name: str, ports: list[Object], **body: Any) -> Object:
    annotations = {}
    if body.get("type") == "LoadBalancer" and spec.publishing.address is None:
        annotations[_EXTERNAL_DNS] = spec.publishing.host
    head = metadata(spec, name, spec.namespace, annotations=annotations)
    selector = dict(spec.kube_apiserver.labels)
    return manifest("v1", "Service", head, spec={"type": "ClusterIP", **body, "selector": selector, "ports": ports})


def _port(name: str, port: int) -> Object:
    target = names.FRONTEND_PORT if port == names.FRONTEND_PORT else names.AGENT_PORT
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}


def network_policies(spec: HostedSpec) -> list[Object]:
    """Include kube-apiserver's own port: a pod that a policy selects is closed to everything that no policy allows."""
    servers, agents = spec.kube_apiserver.labels, {"app": names.AGENT}
    found = [
        _policy(spec, "konnectivity-kube-apiserver", servers, None, spec.kube_apiserver.ports),
        # For every strategy. HyperShift opens it for NodePort only, so load balancers' traffic is dropped; a namespace
        # selector does not match a router with the host's network (OCPBUGS-54574).
        _policy(spec, "konnectivity-agents", servers, None, (names.AGENT_PORT,)),
        _policy(spec, "konnectivity-clients", servers, [{"podSelector": {}}], (names.FRONTEND_PORT,)),
    ]
    # An empty list of sources means everybody, so without namespaces there is no policy.
    if spec.monitoring.enabled and spec.monitoring.namespaces:
        scrapers = [_namespace(name) for name in spec.monitoring.namespaces]
        found.append(_policy(spec, "konnectivity-metrics", servers, scrapers, (names.HEALTH_PORT,)))
        if spec.known_addresses:
            found.append(_policy(spec, "konnectivity-agent-metrics", agents, scrapers, (names.HEALTH_PORT,)))
    return found


def _policy(
    spec: HostedSpec, name: str, pods: Mapping[str, str], sources: list[Object] | None, ports: Iterable[int]
) -> Object:
    """`sources` None: everybody."""
    rule: Object = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    if sources is not None:
        rule["from"] = sources
    body = {"podSelector": {"matchLabels": dict(pods)}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", metadata(spec, name, spec.namespace), spec=body)


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


_PORT: Final = 443
_PORT_NAME: Final = "https"
# Kubernetes mirrors Endpoints into EndpointSlices, which would list every address twice.
_SKIP_MIRROR: Final = {"endpointslice.kubernetes.io/skip-mirror": "true"}


def aggregated_apis(spec: HostedSpec) -> list[Object]:
    """Skip Services without known addresses: an APIService without endpoints stalls discovery."""
    found: list[Object] = []
    for api in spec.aggregated_apis:
        if api.addresses:
            found += [_outside_service(spec, api), _endpoints(spec, api), *_slices(spec, api)]
            found += [_api_service(spec, api, group) for group in api.groups]
    return found


def _outside_service(spec: HostedSpec, api: AggregatedApi) -> Object:
    port = {"name": _PORT_NAME, "port": _PORT, "targetPort": _PORT, "protocol": "TCP"}
    head = metadata(spec, api.service, names.AGGREGATED_NAMESPACE)
    return manifest("v1", "Service", head, spec={"type": "ClusterIP", "ports": [port]})


def _endpoints(spec: HostedSpec, api: AggregatedApi) -> Object:
    """For a kube-apiserver that does not use EndpointSlices yet."""
    head = metadata(spec, api.service, names.AGGREGATED_NAMESPACE, _SKIP_MIRROR)
    subset = {
        "addresses": [{"ip": str(address)} for address in api.addresses],
        "ports": [{"name": _PORT_NAME, "port": _PORT, "protocol": "TCP"}],
    }
    return manifest("v1", "Endpoints", head, subsets=[subset])


def _slices(spec: HostedSpec, api: AggregatedApi) -> list[Object]:
    """Return a slice for each IP family."""
    found = []
    for version in sorted({address.version for address in api.addresses}):
        labels = {"kubernetes.io/service-name": api.service}
        head = metadata(spec, f"{api.service}-ipv{version}", names.AGGREGATED_NAMESPACE, labels)
        addresses = [str(address) for address in api.addresses if address.version == version]
        found.append(
            manifest(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                head,
                addressType=f"IPv{version}",
                endpoints=[{"addresses": addresses, "conditions": {"ready": True}}],
                ports=[{"name": _PORT_NAME, "port": _PORT, "protocol": "TCP"}],
            )
        )
    return found


def _api_service(spec: HostedSpec, api: AggregatedApi, group: ApiGroup) -> Object:
    body = {
        "group": group.group,
        "version": group.version,
        "groupPriorityMinimum": group.group_priority,
        "versionPriority": group.version_priority,
        "caBundle": base64.b64encode(spec.aggregated_authority.strip().encode() + b"\n").decode(),
        "service": {"name": api.service, "namespace": names.AGGREGATED_NAMESPACE, "port": _PORT},
    }
    head = {"name": group.name, "labels": spec.labels}
    return manifest("apiregistration.k8s.io/v1", "APIService", head, spec=body)
