"""Where Prometheus finds the metrics of servers, agents and proxies: a Service with a ServiceMonitor, and PodMonitors.

Servers sit behind Services of their own, one more of which is for scrapes. Agents and sidecars have none.
"""

from collections.abc import Mapping
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object

API_VERSION: Final = "monitoring.coreos.com/v1"
METRICS_SERVICE: Final = "konnectivity-server-metrics"
METRICS_PORT: Final = "metrics"
PROXY_LABEL: Final = ("umbilical.dev/proxy", "true")
"""On pods that have a proxy as sidecar; their PodMonitor finds them by it."""
PROXY_PORTS: Final = ("https-health", "socks5-health")
"""Names of the sidecars' health ports."""
_INTERVAL: Final = "30s"
_TIMEOUT: Final = "10s"


def monitors(spec: HostedSpec) -> list[Object]:
    """What the management cluster gets."""
    if not spec.monitoring.enabled:
        return []
    found = [_metrics_service(spec), _server_monitor(spec)]
    if spec.known_addresses:
        found.append(_pod_monitor(spec, spec.namespace, names.AGENT, {"app": names.AGENT}, (METRICS_PORT,)))
    if spec.components:
        found.append(_pod_monitor(spec, spec.namespace, "konnectivity-proxies", dict([PROXY_LABEL]), PROXY_PORTS))
    return found


def hosted_monitors(spec: HostedSpec) -> list[Object]:
    """What the hosted cluster gets.

    On the host's network agents show their metrics on the node's loopback alone, where no Prometheus gets to: a
    monitor would only report targets that are always down.
    """
    if not spec.monitoring.enabled or spec.agents.host_network:
        return []
    return [_pod_monitor(spec, names.HOSTED_NAMESPACE, names.AGENT, {"app": names.AGENT}, (METRICS_PORT,))]


def _metrics_service(spec: HostedSpec) -> Object:
    port = {"name": METRICS_PORT, "port": names.HEALTH_PORT, "targetPort": names.HEALTH_PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(spec, METRICS_SERVICE, spec.namespace, {"app": METRICS_SERVICE}),
        "spec": {
            # Every server by itself, and those that are not ready too: they are the ones to look at.
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(spec.kube_apiserver.labels),
            "ports": [port],
        },
    }


def _server_monitor(spec: HostedSpec) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "ServiceMonitor",
        "metadata": metadata(spec, names.SERVER, spec.namespace),
        "spec": {
            "selector": {"matchLabels": {"app": METRICS_SERVICE, **spec.labels}},
            "namespaceSelector": {"matchNames": [spec.namespace]},
            "endpoints": [_endpoint(METRICS_PORT)],
        },
    }


def _pod_monitor(
    spec: HostedSpec, namespace: str, name: str, labels: Mapping[str, str], ports: tuple[str, ...]
) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "PodMonitor",
        "metadata": metadata(spec, name, namespace),
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "namespaceSelector": {"matchNames": [namespace]},
            "podMetricsEndpoints": [_endpoint(port) for port in ports],
        },
    }


def _endpoint(port: str) -> Object:
    return {"port": port, "path": "/metrics", "scheme": "http", "interval": _INTERVAL, "scrapeTimeout": _TIMEOUT}
