"""ServiceMonitors and PodMonitors for servers, agents and proxies, and the metric names for alerts and dashboard."""

from collections.abc import Mapping
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object

API_VERSION: Final = "monitoring.coreos.com/v1"
METRICS_SERVICE: Final = "konnectivity-server-metrics"
METRICS_PORT: Final = "metrics"
PROXY_LABEL: Final = ("umbilical.dev/proxy", "true")
"""Label of pods with a proxy as sidecar; their PodMonitor selects it."""
PROXY_PORTS: Final = ("https-health", "socks5-health")
"""Names of the sidecars' health ports."""
_INTERVAL: Final = "30s"
_TIMEOUT: Final = "10s"


def monitors(spec: HostedSpec) -> list[Object]:
    """Return the objects of the management cluster."""
    if not spec.monitoring.enabled:
        return []
    found = [_metrics_service(spec), _server_monitor(spec)]
    if spec.known_addresses:
        found.append(_pod_monitor(spec, spec.namespace, names.AGENT, {"app": names.AGENT}, (METRICS_PORT,)))
    if spec.components:
        found.append(_pod_monitor(spec, spec.namespace, "konnectivity-proxies", dict([PROXY_LABEL]), PROXY_PORTS))
    return found


def hosted_monitors(spec: HostedSpec) -> list[Object]:
    """Return the objects of the hosted cluster.

    With the host's network agents expose metrics only on the node's loopback, which Prometheus cannot reach: a monitor
    would report targets that are always down.
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
            # Headless: every server is scraped, including those that are not ready.
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


_SERVER: Final = "konnectivity_network_proxy_server_"
_AGENT: Final = "konnectivity_network_proxy_agent_"
_PROXY: Final = "umbilical_proxy_"

READY_BACKENDS: Final = f"{_SERVER}ready_backends"
PENDING_DIALS: Final = f"{_SERVER}pending_backend_dials"
ESTABLISHED: Final = f"{_SERVER}established_connections"
HTTP_CONNECTIONS: Final = f"{_SERVER}http_connections"
DIAL_FAILURES: Final = f"{_SERVER}dial_failure_count"
SERVER_DIAL_SECONDS: Final = f"{_SERVER}dial_duration_seconds"
SERVER_PACKETS: Final = f"{_SERVER}stream_packets_total"
SERVER_STREAM_ERRORS: Final = f"{_SERVER}stream_errors_total"

OPEN_SERVERS: Final = f"{_AGENT}open_server_connections"
KNOWN_SERVERS: Final = f"{_AGENT}known_server_count"
OPEN_ENDPOINTS: Final = f"{_AGENT}open_endpoint_connections"
ENDPOINT_DIAL_SECONDS: Final = f"{_AGENT}dial_duration_seconds"
ENDPOINT_DIAL_FAILURES: Final = f"{_AGENT}endpoint_dial_failure_total"

PROXY_CONNECTIONS: Final = f"{_PROXY}connections"
PROXY_REFUSED: Final = f"{_PROXY}refused_connections_total"
PROXY_REQUESTS: Final = f"{_PROXY}requests_total"
PROXY_DIALS: Final = f"{_PROXY}dials_total"
PROXY_DIAL_SECONDS: Final = f"{_PROXY}dial_duration_seconds"
PROXY_BYTES: Final = f"{_PROXY}bytes_total"
PROXY_LOOKUPS: Final = f"{_PROXY}lookups_total"
PROXY_HEALTHY: Final = f"{_PROXY}tunnel_healthy"

CERTIFICATE_EXPIRY: Final = "umbilical_certificate_expiry_timestamp_seconds"
CERTIFICATE_RELOADS: Final = "umbilical_certificate_reloads_total"
MEMORY: Final = "process_resident_memory_bytes"
CPU: Final = "process_cpu_seconds_total"
BUILD: Final = "umbilical_build_info"

DEFAULT_ROUTE: Final = 'proxy_strategy="defaultRoute"'
"""The agents on nodes."""
DEST_HOST: Final = 'proxy_strategy="destHost"'
"""The control-plane agent."""
DIALS_SENT: Final = 'segment="to_agent", packet_type="DIAL_REQ"'
DIALS_ANSWERED: Final = 'segment="from_agent", packet_type="DIAL_RSP"'
