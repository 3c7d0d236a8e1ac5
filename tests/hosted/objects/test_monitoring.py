"""Monitors, alerts and panels use only metrics that servers, agents and proxies expose."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.dialling import closed_port, listening
from tests.support.hosted_queries import EXPRESSIONS, SELECTORS
from tests.support.hosted_specs import hosted_spec
from tests.support.promql import grouping_labels, label_names, label_values, selectors
from tests.support.tunnel_client import DialRefused
from tests.support.tunnel_pair import Shape, TunnelPair, http_get
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.dialer.failure import DialReason
from umbilical.hosted.objects import monitoring
from umbilical.hosted.objects.alerts import RUNBOOK, TUNNEL_REASONS, hosted_rules, rules
from umbilical.hosted.objects.components import HEALTH_PORTS
from umbilical.hosted.objects.dashboard import FILE, dashboard, model
from umbilical.hosted.objects.monitoring import PROXY_PORTS, hosted_monitors, monitors
from umbilical.hosted.objects.spec import Agents, HostedSpec, KubeApiserver, Monitoring
from umbilical.konnectivity.dial_failure import FailureReason
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.tunnel.metrics import AgentGauges, AgentMetrics, CertificateMetrics, ServerGauges, ServerMetrics


def management(spec: HostedSpec) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in monitors(spec)}


def test_servers_are_scraped_one_by_one_and_also_before_they_are_ready() -> None:
    service = management(hosted_spec())["Service", "konnectivity-server-metrics"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"app": "kube-apiserver"}
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [2041]
    labelled = management(hosted_spec(kube_apiserver=KubeApiserver(labels={"tier": "api"})))
    assert labelled["Service", "konnectivity-server-metrics"]["spec"]["selector"] == {"tier": "api"}


def test_the_monitor_of_servers_selects_exactly_its_service() -> None:
    objects = management(hosted_spec())
    service = objects["Service", "konnectivity-server-metrics"]
    monitor = objects["ServiceMonitor", "konnectivity-server"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert "app" in wanted
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_the_control_plane_agent_and_sidecars_are_scraped_where_there_are_some() -> None:
    assert ("PodMonitor", "konnectivity-agent") in management(hosted_spec())
    assert ("PodMonitor", "konnectivity-agent") not in management(hosted_spec(aggregated_apis=()))
    monitor = management(hosted_spec())["PodMonitor", "konnectivity-proxies"]
    assert tuple(endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]) == PROXY_PORTS
    assert sorted(f"{kind.value}-health" for kind in HEALTH_PORTS) == sorted(PROXY_PORTS)
    assert ("PodMonitor", "konnectivity-proxies") not in management(hosted_spec(components=()))


def test_agents_on_the_nodes_loopback_get_no_monitor_that_could_only_fail() -> None:
    assert hosted_monitors(hosted_spec()) == []
    (monitor,) = hosted_monitors(hosted_spec(agents=Agents(host_network=False)))
    assert (monitor["kind"], monitor["metadata"]["namespace"]) == ("PodMonitor", "kube-system")


def test_without_monitoring_there_is_nothing() -> None:
    spec = hosted_spec(monitoring=Monitoring(enabled=False), agents=Agents(host_network=False))
    assert [*monitors(spec), *hosted_monitors(spec), *rules(spec), *hosted_rules(spec), *dashboard(spec)] == []


(RULE,) = rules(hosted_spec())
ALERTS = {entry["alert"]: entry for group in RULE["spec"]["groups"] for entry in group["rules"]}


def test_an_alert_says_how_bad_it_is_and_what_happened_in_one_control_plane() -> None:
    for name, alert in ALERTS.items():
        assert alert["labels"] == {"severity": alert["labels"]["severity"], "hosted_cluster": "guest"}, name
        assert alert["labels"]["severity"] in {"critical", "warning"}, name
        assert all(alert["annotations"][key].endswith(".") for key in ("summary", "description")), name
        assert re.fullmatch(r"\d+m", alert["for"]), name
        found = selectors(alert["expr"])
        assert found, name
        for selector in found:
            matchers = [(one.label, one.operator, one.value) for one in selector.matchers]
            assert ("namespace", "=", "clusters-guest") in matchers, name


def test_every_alert_has_a_section_in_the_runbook_and_no_section_is_left_over(repository: Path) -> None:
    sections = re.findall(r"^### (Umbilical\w+)$", (repository / RUNBOOK).read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(ALERTS)
    for name, alert in ALERTS.items():
        assert alert["annotations"]["runbook"] == f"{RUNBOOK}#{name.lower()}"


def test_a_description_names_only_labels_that_the_result_has() -> None:
    for name, alert in ALERTS.items():
        named = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["description"]))
        if alert["expr"].startswith("sum by"):
            assert named <= grouping_labels(alert["expr"]), name
        elif alert["expr"].startswith("(count("):
            assert named == set(), name
        else:
            assert named <= {"namespace", "pod", "container", "role", "file"}, name


def test_servers_that_are_missing_are_counted_against_the_replicas() -> None:
    (rule,) = rules(hosted_spec(replicas=2))
    expressions = [entry["expr"] for group in rule["spec"]["groups"] for entry in group["rules"]]
    assert any(expression.endswith("< 2") for expression in expressions)


def test_expected_agents_and_aggregated_apis_are_watched_where_there_are_some() -> None:
    (rule,) = rules(hosted_spec(aggregated_apis=(), components=()))
    assert [group["name"] for group in rule["spec"]["groups"]] == ["umbilical-servers", "umbilical-certificates"]


def test_every_fault_of_the_tunnel_is_counted_and_no_endpoint_s() -> None:
    endpoints = {
        DialReason.REFUSED,
        DialReason.UNREACHABLE,
        DialReason.TIMEOUT,
        DialReason.NAME,
        DialReason.FORBIDDEN,
        DialReason.PROXY,
    }
    assert set(TUNNEL_REASONS.split("|")) == {reason.value for reason in DialReason if reason not in endpoints}


def test_a_client_that_gives_up_is_no_failed_dial() -> None:
    (failures, *_) = [one for one in selectors(ALERTS["UmbilicalDialsFail"]["expr"]) if "failure" in one.metric]
    (excluded,) = [matcher for matcher in failures.matchers if matcher.operator == "!="]
    assert (excluded.label, excluded.value) == ("reason", FailureReason.CANCELLED.value)


def test_the_first_failed_reload_of_a_process_is_told_too() -> None:
    """`increase` is 0 for a counter that starts with 1."""
    assert " unless " in ALERTS["UmbilicalCertificateNotReloaded"]["expr"]


def test_agents_of_the_hosted_cluster_are_watched_where_their_metrics_can_be_read() -> None:
    assert hosted_rules(hosted_spec()) == []
    (rule,) = hosted_rules(hosted_spec(agents=Agents(host_network=False)))
    assert rule["metadata"]["namespace"] == "kube-system"
    assert "clusters-guest" not in str(rule["spec"])


PANELS: list[dict[str, Any]] = model(hosted_spec())["panels"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel.get("targets", ())]


def test_it_is_a_config_map_that_grafana_s_sidecar_finds() -> None:
    (config_map,) = dashboard(hosted_spec())
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config_map["metadata"]["namespace"] == "clusters-guest"
    assert json.loads(config_map["data"][FILE]) == model(hosted_spec())


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    sides = [(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])) for at in places]
    cells = [cell for columns, lines in sides for cell in itertools.product(columns, lines)]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24


def test_every_query_asks_the_chosen_control_planes_alone() -> None:
    for title, target in TARGETS:
        scoped = [one for one in selectors(target["expr"]) if one.matchers]
        assert scoped, title
        assert all(
            ("namespace", "=~", "$namespace") in [(m.label, m.operator, m.value) for m in s.matchers] for s in scoped
        )


def test_a_legend_names_only_labels_that_the_result_has() -> None:
    for title, target in TARGETS:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        if "sum by" in target["expr"]:
            assert named <= grouping_labels(target["expr"]), title
        else:
            assert named <= {"pod", "container", "role", "file"}, title


def test_rates_leave_the_interval_to_grafana() -> None:
    for title, target in TARGETS:
        assert re.findall(r"\[([^\]]*)\]", target["expr"]) in ([], ["$__rate_interval"]), title


def test_the_control_plane_of_the_spec_is_chosen_first() -> None:
    namespaces = model(hosted_spec())["templating"]["list"][1]
    assert namespaces["current"]["value"] == "clusters-guest"


TARGET_LABELS = {"namespace", "pod", "container", "instance", "job"}
"""Labels that the Prometheus operator adds to every sample."""
LIVE_LABELS = {"proxy_strategy", "segment", "packet_type"}
"""Labels with few values, all seen after one dial; their values are compared too."""


def certified(certificates: CertificateMetrics) -> None:
    certificates.expiry["frontend", "certificate"] = 1.0
    certificates.reloaded("frontend", "failure")


def all_of_a_server() -> str:
    made = ServerMetrics()
    made.from_agent[1] = made.to_agent[0] = made.from_client[0] = 1
    made.dial_failed("no_agent")
    made.stream_error("from_agent", "Unavailable")
    for histogram in (made.dial_seconds, made.frontend_write_seconds, made.connection_seconds):
        histogram.observe(1.0)
    certified(made.certificates)
    return made.render(ServerGauges(1, 1, 1, {"defaultRoute": 1, "destHost": 1}, 1, 1)).decode()


def all_of_an_agent() -> str:
    made = AgentMetrics()
    made.from_agent[1] = made.to_agent[0] = 1
    made.endpoint_dial_failed("timeout")
    made.stream_error("from_agent", "Unavailable")
    made.dial_seconds.observe(1.0)
    certified(made.certificates)
    return made.render(AgentGauges(1, 1, 1)).decode()


def all_of_a_proxy() -> str:
    made = ProxyMetrics()
    made.refused("limit")
    made.requested("socks5", "ok")
    made.dialled("tunnel", DialReason.NO_AGENT.value, 1.0)
    made.looked_up("guest", "timeout")
    certified(made.certificates)
    return made.render().decode()


SHOWN = label_names(all_of_a_server() + all_of_an_agent() + all_of_a_proxy())


def test_every_metric_and_label_that_is_asked_for_is_shown_by_somebody() -> None:
    assert len(SELECTORS) > 50
    assert {selector.metric for selector in SELECTORS} - SHOWN.keys() == set()
    for selector in SELECTORS:
        assert {matcher.label for matcher in selector.matchers} <= SHOWN[selector.metric] | TARGET_LABELS, selector
    for expression in EXPRESSIONS:
        known = set[str]().union(*(SHOWN[one.metric] for one in selectors(expression)))
        assert grouping_labels(expression) <= known | TARGET_LABELS, expression


def test_no_name_is_kept_that_nobody_asks_for() -> None:
    constants = {value for key, value in vars(monitoring).items() if key.isupper() and isinstance(value, str)}
    kept = {value for value in constants if re.fullmatch("[a-z_]+_[a-z_]+", value)}
    asked = {re.sub("_bucket$", "", selector.metric) for selector in SELECTORS}
    assert {name for name in kept if not name.endswith("_")} == asked


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Metrics of a server and an agent with HyperShift's strategies after two dials, one of which failed."""
    folder = tmp_path_factory.mktemp("pair")
    flags = ["--proxy-strategies=destHost,defaultRoute"], ["--agent-identifiers=default-route=true&ipv4=192.0.2.7"]
    pair = TunnelPair(Shape(), make_tunnel_pki(folder), folder, *flags)
    listener, port = listening()
    try:
        pair.start()
        pair.frontend().open(f"127.0.0.1:{port}").close()
        with pytest.raises(DialRefused):
            pair.frontend().open(f"127.0.0.1:{closed_port()}")
        yield pair.server_health("/metrics")[1] + http_get(f"http://127.0.0.1:{pair.ports.agent_health}/metrics")[1]
    finally:
        listener.close()
        pair.stop()


NOT_WITHOUT_A_FAULT = {"stream_errors_total", "certificate_reloads_total"}


def test_a_running_pair_shows_what_is_asked_of_servers_and_agents(live: str) -> None:
    shown = label_names(live)
    asked = {one.metric for one in SELECTORS if not one.metric.startswith("umbilical_proxy_")}
    missing = {name for name in asked - set(shown) if not name.endswith(tuple(NOT_WITHOUT_A_FAULT))}
    assert missing == set()
    for name in asked & set(shown):
        assert shown[name] <= SHOWN[name]


def test_a_running_pair_shows_the_values_that_are_asked_for(live: str) -> None:
    shown = label_values(live)
    wanted = {(one.metric, m.label, m.value) for one in SELECTORS for m in one.matchers if m.label in LIVE_LABELS}
    assert len(wanted) == 6
    assert {triple for triple in wanted if triple[1:] not in shown[triple[0]]} == set()
