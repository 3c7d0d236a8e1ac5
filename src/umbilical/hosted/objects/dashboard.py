"""A Grafana dashboard for servers, agents and proxies, as a ConfigMap for Grafana's sidecar. The Helm chart has
the same one without the proxies.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hosted.objects import monitoring as metric
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, config_map

DISCOVERY_LABEL: Final = ("grafana_dashboard", "1")
"""Label by which Grafana's sidecar finds dashboards."""
NAME: Final = "umbilical-dashboard"
FILE: Final = "umbilical.json"
_SCHEMA_VERSION: Final = 39
"""Of Grafana 10.4; newer versions read it."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCOPE: Final = 'namespace=~"$namespace"'
_PER_POD: Final = "{{pod}}"
_WIDTH: Final = 8
_HEIGHT: Final = 8
_COLUMNS: Final = 24


@dataclass(frozen=True)
class PanelQuery:
    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    """Grafana's name of the unit."""
    queries: tuple[PanelQuery, ...]
    description: str = ""


def dashboard(spec: HostedSpec) -> list[Object]:
    if not spec.monitoring.enabled:
        return []
    head = metadata(spec, NAME, spec.namespace, dict([DISCOVERY_LABEL]))
    return [config_map(head, {FILE: json.dumps(model(spec), indent=1) + "\n"})]


def model(spec: HostedSpec) -> Object:
    return dashboard_model("umbilical-hosted", "Umbilical: tunnel of hosted control planes", spec.namespace, ROWS)


def dashboard_model(uid: str, title: str, namespace: str, rows: Mapping[str, tuple[Panel, ...]]) -> Object:
    """Return Grafana's JSON model; `namespace` is selected first."""
    return {
        "uid": uid,
        "title": title,
        "tags": ["umbilical", "konnectivity"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_data_source(), _namespaces(namespace)]},
        "panels": list(_laid_out(rows)),
    }


def _rate(name: str, labels: str = "", by: str = "pod") -> str:
    return f"sum by ({by}) (rate({name}{{{_scoped(labels)}}}[$__rate_interval]))"


def _gauge(name: str, labels: str = "") -> str:
    return f"{name}{{{_scoped(labels)}}}"


def _slowest(name: str, by: str = "pod") -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({name}_bucket{{{_SCOPE}}}[$__rate_interval])))"


def _scoped(labels: str) -> str:
    return f"{_SCOPE}, {labels}" if labels else _SCOPE


_SERVERS: Final = (
    Panel(
        "Agents per server",
        "short",
        (
            PanelQuery(_gauge(metric.READY_BACKENDS, metric.DEFAULT_ROUTE), "{{pod}}: nodes"),
            PanelQuery(_gauge(metric.READY_BACKENDS, metric.DEST_HOST), "{{pod}}: control-plane addresses"),
        ),
        "All servers should have the same number. A lower line is a server that some agents do not reach.",
    ),
    Panel("Dials", "ops", (PanelQuery(_rate(metric.SERVER_PACKETS, metric.DIALS_SENT), _PER_POD),)),
    Panel(
        "Failed dials",
        "ops",
        (PanelQuery(_rate(metric.DIAL_FAILURES, by="reason"), "{{reason}}"),),
        "error_response is caused by an endpoint; no_agent, backend_close and backend_dial_timeout by the tunnel.",
    ),
    Panel("Dial duration, 99th percentile", "s", (PanelQuery(_slowest(metric.SERVER_DIAL_SECONDS), _PER_POD),)),
    Panel(
        "Open tunnels and pending dials",
        "short",
        (
            PanelQuery(_gauge(metric.ESTABLISHED), "{{pod}}: open"),
            PanelQuery(_gauge(metric.PENDING_DIALS), "{{pod}}: pending"),
            PanelQuery(_gauge(metric.HTTP_CONNECTIONS), "{{pod}}: clients"),
        ),
    ),
    Panel(
        "Stream errors", "ops", (PanelQuery(_rate(metric.SERVER_STREAM_ERRORS, by="pod, code"), "{{pod}}: {{code}}"),)
    ),
)
_AGENTS: Final = (
    Panel(
        "Servers connected per agent",
        "short",
        (PanelQuery(_gauge(metric.OPEN_SERVERS), _PER_POD), PanelQuery(_gauge(metric.KNOWN_SERVERS), "{{pod}}: known")),
        "Agents with the host's network expose metrics only on their node's loopback and are not shown.",
    ),
    Panel("Connections to endpoints", "short", (PanelQuery(_gauge(metric.OPEN_ENDPOINTS), _PER_POD),)),
    Panel(
        "Dials of endpoints: duration, 99th percentile, and failures",
        "s",
        (
            PanelQuery(_slowest(metric.ENDPOINT_DIAL_SECONDS), _PER_POD),
            PanelQuery(_rate(metric.ENDPOINT_DIAL_FAILURES, by="pod, reason"), "{{pod}}: {{reason}} per second"),
        ),
    ),
)
_PROXIES: Final = (
    Panel("Proxies that reach a server", "short", (PanelQuery(_gauge(metric.PROXY_HEALTHY), "{{pod}}/{{container}}"),)),
    Panel(
        "Requests",
        "ops",
        (PanelQuery(_rate(metric.PROXY_REQUESTS, by="protocol, result"), "{{protocol}}: {{result}}"),),
    ),
    Panel("Dials by route", "ops", (PanelQuery(_rate(metric.PROXY_DIALS, by="way, result"), "{{way}}: {{result}}"),)),
    Panel("Dial duration, 99th percentile", "s", (PanelQuery(_slowest(metric.PROXY_DIAL_SECONDS, "way"), "{{way}}"),)),
    Panel("Lookups", "ops", (PanelQuery(_rate(metric.PROXY_LOOKUPS, by="way, result"), "{{way}}: {{result}}"),)),
    Panel(
        "Clients, and refused clients",
        "short",
        (
            PanelQuery(_gauge(metric.PROXY_CONNECTIONS), "{{pod}}/{{container}}"),
            PanelQuery(_rate(metric.PROXY_REFUSED, by="pod, reason"), "{{pod}}: {{reason}} per second"),
        ),
    ),
    Panel("Traffic", "Bps", (PanelQuery(_rate(metric.PROXY_BYTES, by="pod, direction"), "{{pod}}: {{direction}}"),)),
)
_PROCESSES: Final = (
    Panel(
        "Days until certificates expire",
        "d",
        (PanelQuery(f"({_gauge(metric.CERTIFICATE_EXPIRY)} - time()) / 86400", "{{pod}}: {{role}} {{file}}"),),
    ),
    Panel(
        "Certificate reloads",
        "short",
        (
            PanelQuery(
                f"sum by (pod, role, result) (increase({_gauge(metric.CERTIFICATE_RELOADS)}[$__rate_interval]))",
                "{{pod}}: {{role}} {{result}}",
            ),
        ),
    ),
    Panel(
        "Memory and CPU",
        "bytes",
        (
            PanelQuery(f"{_gauge(metric.MEMORY)} and on (namespace, pod, instance) {metric.BUILD}", "{{pod}}"),
            PanelQuery(
                f"rate({_gauge(metric.CPU)}[$__rate_interval]) and on (namespace, pod, instance) {metric.BUILD}",
                "{{pod}}: cores",
            ),
        ),
    ),
)
PROXY_ROW: Final = "Proxies"
ROWS: Final = {"Servers": _SERVERS, "Agents": _AGENTS, PROXY_ROW: _PROXIES, "Certificates and processes": _PROCESSES}


def _laid_out(rows: Mapping[str, tuple[Panel, ...]]) -> Iterator[Object]:
    number, top = 1, 0
    for title, panels in rows.items():
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": _place(top, 0, 1, _COLUMNS)}
        number, top = number + 1, top + 1
        for index, panel in enumerate(panels):
            line, column = divmod(index * _WIDTH, _COLUMNS)
            yield _panel(panel, number, _place(top + line * _HEIGHT, column, _HEIGHT, _WIDTH))
            number += 1
        top += -(-len(panels) * _WIDTH // _COLUMNS) * _HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> Object:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": dict(_SOURCE),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": _targets(panel.queries),
    }


def _targets(queries: Sequence[PanelQuery]) -> list[Object]:
    return [
        {"refId": chr(ord("A") + number), "expr": query.expression, "legendFormat": query.legend}
        for number, query in enumerate(queries)
    ]


def _place(top: int, left: int, height: int, width: int) -> dict[str, int]:
    return {"x": left, "y": top, "h": height, "w": width}


def _data_source() -> Object:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _namespaces(namespace: str) -> Object:
    """Every tunnel of this Prometheus; this one is selected first."""
    return {
        "name": "namespace",
        "type": "query",
        "datasource": dict(_SOURCE),
        "query": f"label_values({metric.READY_BACKENDS}, namespace)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": namespace, "value": namespace},
    }
