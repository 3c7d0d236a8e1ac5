"""Alerts as a PrometheusRule: each with a severity, a summary and a section in docs/alerts.md. The Helm chart has the
same ones.

Every expression is limited to one namespace, because one Prometheus may watch many control planes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from umbilical.hosted.objects import monitoring as metric
from umbilical.hosted.objects import names
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.monitoring import API_VERSION, hosted_monitors
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, manifest

RUNBOOK: Final = "docs/alerts.md"
_DAY: Final = 24 * 3600
WARN_DAYS: Final = 14
URGENT_DAYS: Final = 2
"""Certificates are renewed with a third of their lifetime left: below this, renewal or rollout was missed."""
MAX_FAILED_DIALS: Final = 0.2
MIN_FAILURES_PER_SECOND: Final = 0.05
"""Below it, one client with a dead endpoint could be a large part of all dials."""
TUNNEL_REASONS: Final = "no-agent|agent-lost|server|tls|protocol"
"""Reasons of failed dials that the tunnel causes, not an endpoint."""


class AlertSeverity(Enum):
    CRITICAL = "critical"
    """Calls fail now, or will soon."""
    WARNING = "warning"


@dataclass(frozen=True)
class Alert:
    name: str
    minutes: int
    """How long the expression must hold."""
    severity: AlertSeverity
    expression: str
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.name.lower()}"


def rules(spec: HostedSpec) -> list[Object]:
    """Return the rules for the management cluster: servers, the control-plane agent and proxies."""
    if not spec.monitoring.enabled:
        return []
    scope = f'namespace="{spec.namespace}"'
    groups = {
        "umbilical-servers": server_alerts(scope, spec.replicas),
        "umbilical-certificates": certificate_alerts(scope),
    }
    if spec.known_addresses:
        groups["umbilical-aggregated-apis"] = aggregation_alerts(scope)
        groups["umbilical-agents"] = agent_alerts(scope)
    if spec.components:
        groups["umbilical-proxies"] = proxy_alerts(scope)
    return [_rule(spec, spec.namespace, groups)]


def hosted_rules(spec: HostedSpec) -> list[Object]:
    """Return the rules for the hosted cluster: agents on nodes, if their metrics are read."""
    if not hosted_monitors(spec):
        return []
    scope = f'namespace="{names.HOSTED_NAMESPACE}"'
    groups = {"umbilical-agents": agent_alerts(scope), "umbilical-certificates": certificate_alerts(scope)}
    return [_rule(spec, names.HOSTED_NAMESPACE, groups)]


def server_alerts(scope: str, servers: int | str) -> tuple[Alert, ...]:
    """`servers`: how many there should be, or a placeholder for it."""
    nodes = f"{metric.READY_BACKENDS}{{{scope}, {metric.DEFAULT_ROUTE}}}"
    failed = f'sum by (namespace, pod) (rate({metric.DIAL_FAILURES}{{{scope}, reason!="frontend_close"}}[5m]))'
    sent = f"sum by (namespace, pod) (rate({metric.SERVER_PACKETS}{{{scope}, {metric.DIALS_SENT}}}[5m]))"
    answered = f"sum by (namespace, pod) (rate({metric.SERVER_PACKETS}{{{scope}, {metric.DIALS_ANSWERED}}}[5m]))"
    return (
        Alert(
            "UmbilicalServerHasNoAgents",
            5,
            AlertSeverity.CRITICAL,
            f"{nodes} == 0",
            "No agent of a node is connected to a server.",
            "The server in pod {{ $labels.namespace }}/{{ $labels.pod }} has no agent on any node. Logs, exec and "
            "webhooks that kube-apiserver sends through it fail.",
        ),
        Alert(
            "UmbilicalServerHasFewerAgents",
            15,
            AlertSeverity.WARNING,
            f"{nodes} < on (namespace) group_left () max by (namespace) ({nodes})",
            "A server has fewer agents than another server.",
            "The server in pod {{ $labels.namespace }}/{{ $labels.pod }} has {{ $value }} agents, and another server "
            "has more. Some agents do not reach it, so it dials endpoints on their nodes through other agents.",
        ),
        Alert(
            "UmbilicalServersMissing",
            10,
            AlertSeverity.WARNING,
            f"(count({nodes}) or vector(0)) < {servers}",
            "Fewer servers expose metrics than there should be.",
            f"{{{{ $value }}}} of {servers} servers expose metrics. The others do not run, or Prometheus cannot reach "
            "their health port.",
        ),
        Alert(
            "UmbilicalDialsFail",
            10,
            AlertSeverity.WARNING,
            f"{failed} / {sent} > {MAX_FAILED_DIALS} and {failed} > {MIN_FAILURES_PER_SECOND}",
            "Many dials through a server fail.",
            "{{ $value | humanizePercentage }} of the dials through {{ $labels.namespace }}/{{ $labels.pod }} fail.",
        ),
        Alert(
            "UmbilicalDialsStalled",
            5,
            AlertSeverity.CRITICAL,
            f"{metric.PENDING_DIALS}{{{scope}}} > 0 unless on (namespace, pod) {answered} > 0",
            "Dials are pending, and no agent answers.",
            "{{ $value }} dials are pending in pod {{ $labels.namespace }}/{{ $labels.pod }}, and no agent has "
            "answered one for five minutes.",
        ),
    )


def aggregation_alerts(scope: str) -> tuple[Alert, ...]:
    return (
        Alert(
            "UmbilicalControlPlaneAgentMissing",
            5,
            AlertSeverity.CRITICAL,
            f"{metric.READY_BACKENDS}{{{scope}, {metric.DEST_HOST}}} == 0",
            "No control-plane agent is connected to a server.",
            "The server in pod {{ $labels.namespace }}/{{ $labels.pod }} has no agent for the aggregated APIs: "
            "their calls go to agents on nodes, which cannot reach them.",
        ),
    )


def agent_alerts(scope: str) -> tuple[Alert, ...]:
    connected, known = f"{metric.OPEN_SERVERS}{{{scope}}}", f"{metric.KNOWN_SERVERS}{{{scope}}}"
    return (
        Alert(
            "UmbilicalAgentDisconnected",
            5,
            AlertSeverity.CRITICAL,
            f"{connected} == 0",
            "An agent is not connected to any server.",
            "The agent in pod {{ $labels.namespace }}/{{ $labels.pod }} has no connection to any server.",
        ),
        Alert(
            "UmbilicalAgentMissesServers",
            15,
            AlertSeverity.WARNING,
            f"{connected} < {known}",
            "An agent is connected to fewer servers than there are.",
            "The agent in pod {{ $labels.namespace }}/{{ $labels.pod }} is connected to {{ $value }} servers, and "
            "knows of more.",
        ),
    )


def certificate_alerts(scope: str) -> tuple[Alert, ...]:
    left = f"{metric.CERTIFICATE_EXPIRY}{{{scope}}} - time()"
    failed = f'{metric.CERTIFICATE_RELOADS}{{{scope}, result="failure"}}'
    where = "{{ $labels.role }} ({{ $labels.file }}) in pod {{ $labels.namespace }}/{{ $labels.pod }}"
    return (
        Alert(
            "UmbilicalCertificateExpiresSoon",
            60,
            AlertSeverity.WARNING,
            f"{left} < {WARN_DAYS * _DAY} and {left} >= {URGENT_DAYS * _DAY}",
            f"A certificate in use expires within {WARN_DAYS} days.",
            f"The certificate of {where} expires in {{{{ $value | humanizeDuration }}}}.",
        ),
        Alert(
            "UmbilicalCertificateExpires",
            5,
            AlertSeverity.CRITICAL,
            f"{left} < {URGENT_DAYS * _DAY}",
            f"A certificate in use expires within {URGENT_DAYS} days, or has expired.",
            f"The certificate of {where} expires in {{{{ $value | humanizeDuration }}}}. After that every new "
            "connection with it fails.",
        ),
        Alert(
            "UmbilicalCertificateNotReloaded",
            0,
            AlertSeverity.WARNING,
            # For Prometheus a counter that starts with 1 has not increased: count its first sample too.
            f"({failed} - {failed} offset 30m) > 0 or ({failed} unless {failed} offset 30m)",
            "Changed certificate files could not be loaded.",
            f"The files of {where.replace(' ({{ $labels.file }})', '')} changed and could not be loaded; the previous "
            "certificates stay in use. The program's log has the cause.",
        ),
    )


def proxy_alerts(scope: str) -> tuple[Alert, ...]:
    where = "container {{ $labels.container }} of pod {{ $labels.namespace }}/{{ $labels.pod }}"
    by = "sum by (namespace, pod, container)"
    broken = f'{by} (rate({metric.PROXY_DIALS}{{{scope}, way="tunnel", result=~"{TUNNEL_REASONS}"}}[5m]))'
    dials = f'{by} (rate({metric.PROXY_DIALS}{{{scope}, way="tunnel"}}[5m]))'
    lost = f'{by} (rate({metric.PROXY_LOOKUPS}{{{scope}, result=~"timeout|failed"}}[5m]))'
    lookups = f'{by} (rate({metric.PROXY_LOOKUPS}{{{scope}, result!="cached"}}[5m]))'
    return (
        Alert(
            "UmbilicalProxyNotReady",
            5,
            AlertSeverity.CRITICAL,
            f"{metric.PROXY_HEALTHY}{{{scope}}} == 0",
            "A proxy reaches no server of the tunnel.",
            f"The proxy in {where} reaches no server. Traffic from its pod to the data plane fails.",
        ),
        Alert(
            "UmbilicalProxyRefuses",
            5,
            AlertSeverity.WARNING,
            f'{by} (rate({metric.PROXY_REFUSED}{{{scope}, reason="limit"}}[5m])) > 0',
            "A proxy refuses connections: it has reached its limit.",
            f"The proxy in {where} has reached --max-connections and closes new connections.",
        ),
        Alert(
            "UmbilicalProxyDialsFail",
            10,
            AlertSeverity.WARNING,
            f"{broken} / {dials} > {MAX_FAILED_DIALS}",
            "Dials of a proxy fail because of the tunnel.",
            f"{{{{ $value | humanizePercentage }}}} of the dials of the proxy in {where} fail before any endpoint "
            "is reached.",
        ),
        Alert(
            "UmbilicalProxyLookupsFail",
            10,
            AlertSeverity.WARNING,
            f"{lost} / {lookups} > {MAX_FAILED_DIALS}",
            "Name lookups through the tunnel fail.",
            f"{{{{ $value | humanizePercentage }}}} of the lookups of the proxy in {where} get no answer. Names that "
            "do not exist are not counted.",
        ),
    )


def _rule(spec: HostedSpec, namespace: str, groups: dict[str, tuple[Alert, ...]]) -> Object:
    listed = rule_groups(groups, {"hosted_cluster": spec.name})
    return manifest(API_VERSION, "PrometheusRule", metadata(spec, "umbilical", namespace), spec={"groups": listed})


def rule_groups(groups: Mapping[str, Sequence[Alert]], labels: Mapping[str, str]) -> list[Object]:
    """Return the groups of a PrometheusRule; every alert gets the labels."""
    return [{"name": name, "rules": _entries(alerts, labels)} for name, alerts in groups.items()]


def _entries(alerts: Sequence[Alert], labels: Mapping[str, str]) -> list[Object]:
    return [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": f"{alert.minutes}m",
            "labels": {"severity": alert.severity.value, **labels},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                # A path: the operator prepends the URL of these documents.
                "runbook": alert.runbook,
            },
        }
        for alert in alerts
    ]
