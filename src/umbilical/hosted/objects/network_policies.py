"""Who may reach which port of the pods that we touch. Certificates are the guard; policies must not be a trap."""

from collections.abc import Iterable, Mapping

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, manifest


def network_policies(spec: HostedSpec) -> list[Object]:
    """A pod that one policy selects is closed to all that none opens: so kube-apiserver's own port is among them."""
    servers, agents = spec.kube_apiserver.labels, {"app": names.AGENT}
    found = [
        _policy(spec, "konnectivity-kube-apiserver", servers, None, spec.kube_apiserver.ports),
        # For every strategy. HyperShift opens it for NodePort alone, and load balancers' traffic is dropped; no rule
        # about namespaces matches a router on the host's network (OCPBUGS-54574).
        _policy(spec, "konnectivity-agents", servers, None, (names.AGENT_PORT,)),
        _policy(spec, "konnectivity-clients", servers, [{"podSelector": {}}], (names.FRONTEND_PORT,)),
    ]
    # An empty list of sources means everybody, so that no policy is right where no namespace is named.
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
