"""Every metric and label that an alert or a panel names, against what servers, agents and proxies really show."""

import re
from collections.abc import Iterator

import pytest
from tests.support.dialling import closed_port, listening
from tests.support.hosted_queries import EXPRESSIONS, SELECTORS
from tests.support.promql import Selector, grouping_labels, label_names, label_values, selectors
from tests.support.tunnel_client import DialRefused
from tests.support.tunnel_pair import Shape, TunnelPair, http_get
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.assets.hosted import monitoring_names
from umbilical.dialer.failure import Reason
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.tunnel.metrics import AgentGauges, AgentMetrics, CertificateMetrics, ServerGauges, ServerMetrics

TARGET_LABELS = {"namespace", "pod", "container", "instance", "job"}
"""What Prometheus' operator puts on every sample of a pod or of a Service's endpoint."""
LIVE_LABELS = {"proxy_strategy", "segment", "packet_type"}
"""Whose values are few and shown by a pair that has dialled once, so that they are compared too."""


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
    made.dialled("tunnel", Reason.NO_AGENT.value, 1.0)
    made.looked_up("guest", "timeout")
    certified(made.certificates)
    return made.render().decode()


SHOWN = label_names(all_of_a_server() + all_of_an_agent() + all_of_a_proxy())


def test_there_is_something_to_compare() -> None:
    assert len(SELECTORS) > 50
    assert {one.metric for one in SELECTORS} >= {"umbilical_proxy_dial_duration_seconds_bucket"}


@pytest.mark.parametrize("name", sorted({selector.metric for selector in SELECTORS}))
def test_every_metric_that_is_asked_for_is_shown_by_somebody(name: str) -> None:
    assert name in SHOWN


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda one: one.metric)
def test_every_label_that_is_matched_is_one_of_its_metric(selector: Selector) -> None:
    assert {matcher.label for matcher in selector.matchers} <= SHOWN[selector.metric] | TARGET_LABELS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_label_that_is_grouped_by_is_one_of_the_metrics(expression: str) -> None:
    known = set[str]().union(*(SHOWN[one.metric] for one in selectors(expression)))
    assert grouping_labels(expression) <= known | TARGET_LABELS


def test_no_name_is_kept_that_nobody_asks_for() -> None:
    kept = {value for key, value in vars(monitoring_names).items() if key.isupper() and re.fullmatch("[a-z_]+", value)}
    asked = {re.sub("_bucket$", "", selector.metric) for selector in SELECTORS}
    assert {name for name in kept if not name.endswith("_")} == asked


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a server and an agent show that run with HyperShift's strategies and have dialled, once in vain."""
    folder = tmp_path_factory.mktemp("pair")
    pair = TunnelPair(
        Shape(),
        make_tunnel_pki(folder),
        folder,
        ["--proxy-strategies=destHost,defaultRoute"],
        ["--agent-identifiers=default-route=true&ipv4=192.0.2.7"],
    )
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
