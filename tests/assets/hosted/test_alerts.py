"""Alerts: what they carry, what they look at, and where somebody woken by one reads on."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec
from tests.support.promql import grouping_labels, selectors

from umbilical.assets.hosted.alerts import RUNBOOK, TUNNEL_REASONS, hosted_rules, rules
from umbilical.assets.hosted.spec import Agents, Monitoring
from umbilical.dialer.failure import Reason
from umbilical.konnectivity.dial_failure import FailureReason

(RULE,) = rules(hosted_spec())
ALERTS = {entry["alert"]: entry for group in RULE["spec"]["groups"] for entry in group["rules"]}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_happened_and_where_to_read_on(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"] == {"severity": alert["labels"]["severity"], "hosted_cluster": "guest"}
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")
    assert re.fullmatch(r"\d+m", alert["for"])


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_looks_at_one_control_plane_alone(name: str) -> None:
    found = selectors(ALERTS[name]["expr"])
    assert found
    for selector in found:
        assert 'namespace="clusters-guest"' in [f'{m.label}{m.operator}"{m.value}"' for m in selector.matchers]


def test_every_alert_has_a_section_in_the_runbook_and_no_section_is_left_over(repository: Path) -> None:
    sections = re.findall(r"^### (Umbilical\w+)$", (repository / RUNBOOK).read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(ALERTS)
    for name, alert in ALERTS.items():
        assert alert["annotations"]["runbook"] == f"{RUNBOOK}#{name.lower()}"


@pytest.mark.parametrize("name", ALERTS)
def test_a_description_names_only_labels_that_the_result_has(name: str) -> None:
    alert = ALERTS[name]
    named = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["description"]))
    if alert["expr"].startswith("sum by"):
        assert named <= grouping_labels(alert["expr"])
    elif alert["expr"].startswith("(count("):
        assert named == set()
    else:
        assert named <= {"namespace", "pod", "container", "role", "file"}


def test_servers_that_are_missing_are_counted_against_the_replicas() -> None:
    (rule,) = rules(hosted_spec(replicas=2))
    expressions = [entry["expr"] for group in rule["spec"]["groups"] for entry in group["rules"]]
    assert any(expression.endswith("< 2") for expression in expressions)


def test_expected_agents_and_aggregated_apis_are_watched_where_there_are_some() -> None:
    (rule,) = rules(hosted_spec(aggregated_apis=(), components=()))
    assert [group["name"] for group in rule["spec"]["groups"]] == ["umbilical-servers", "umbilical-certificates"]


def test_every_fault_of_the_tunnel_is_counted_and_no_endpoint_s() -> None:
    endpoints = {Reason.REFUSED, Reason.UNREACHABLE, Reason.TIMEOUT, Reason.NAME, Reason.FORBIDDEN, Reason.PROXY}
    assert set(TUNNEL_REASONS.split("|")) == {reason.value for reason in Reason if reason not in endpoints}


def test_a_client_that_gives_up_is_no_failed_dial() -> None:
    (failures, *_) = [one for one in selectors(ALERTS["UmbilicalDialsFail"]["expr"]) if "failure" in one.metric]
    (excluded,) = [matcher for matcher in failures.matchers if matcher.operator == "!="]
    assert (excluded.label, excluded.value) == ("reason", FailureReason.CANCELLED.value)


def test_the_first_failed_reload_of_a_process_is_told_too() -> None:
    """`increase` would not see it: the counter begins with 1."""
    assert " unless " in ALERTS["UmbilicalCertificateNotReloaded"]["expr"]


def test_agents_of_the_hosted_cluster_are_watched_where_their_metrics_can_be_read() -> None:
    assert hosted_rules(hosted_spec()) == []
    (rule,) = hosted_rules(hosted_spec(agents=Agents(host_network=False)))
    assert rule["metadata"]["namespace"] == "kube-system"
    assert "clusters-guest" not in str(rule["spec"])


def test_without_monitoring_there_are_no_rules() -> None:
    off: Any = Monitoring(enabled=False)
    assert rules(hosted_spec(monitoring=off)) == hosted_rules(hosted_spec(monitoring=off)) == []
