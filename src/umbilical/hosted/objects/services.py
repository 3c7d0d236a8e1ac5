"""How clients and agents find the servers: two Services, and what leads to the second from outside."""

from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec, Strategy
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
    # A lone kube-apiserver would wait for webhooks that it reaches only through a Service that waits for it. Among
    # several the ready ones serve: not-ready ones include those that are just being drained.
    return _service(spec, names.SERVER_LOCAL, ports, publishNotReadyAddresses=spec.replicas == 1)


def agent_service(spec: HostedSpec) -> Object:
    publishing = spec.publishing
    ports = [_port("agents", names.AGENT_PORT)]
    if publishing.strategy is Strategy.NODE_PORT:
        ports[0]["nodePort"] = publishing.port
    elif publishing.strategy is Strategy.LOAD_BALANCER and publishing.port != names.AGENT_PORT:
        # The control-plane agent goes on to dial the usual one.
        ports.append(_port("agents-outside", publishing.port))
    body: dict[str, Any] = {"type": _TYPES[publishing.strategy]}
    # HyperShift's lacks it, so that a new server has no agents until kube-apiserver is ready, which may need them.
    return _service(spec, names.SERVER, ports, **body, publishNotReadyAddresses=True)


def routes(spec: HostedSpec) -> list[Object]:
    """TLS goes through to the server, which has to see agents' certificates."""
    if spec.publishing.strategy is not Strategy.ROUTE:
        return []
    # Round robin, so that an agent that dials again reaches another server.
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
