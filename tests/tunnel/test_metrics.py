import asyncio
import math
import os
import re
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.support.tunnel_client import Frontend
from tests.support.tunnel_pair import TunnelPair, http_get, upstream_pair, wait_until

from umbilical.tunnel import metrics, pprof
from umbilical.tunnel.exposition import Exposition, Histogram, Labels, add, observe
from umbilical.tunnel.metrics import AgentGauges, AgentMetrics, ServerGauges, ServerMetrics
from umbilical.tunnel.pprof import Profiler
from umbilical.wire import packets

SERVER = "konnectivity_network_proxy_server_"
AGENT = "konnectivity_network_proxy_agent_"


def families(text: bytes | str) -> dict[str, Metric]:
    decoded = text.decode() if isinstance(text, bytes) else text
    return {family.name: family for family in text_string_to_metric_families(decoded)}


def ours(text: bytes | str, prefix: str) -> dict[str, Metric]:
    return {name.removeprefix(prefix): family for name, family in families(text).items() if name.startswith(prefix)}


def samples(family: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def full_server() -> tuple[ServerMetrics, ServerGauges]:
    server = ServerMetrics()
    for segment in (server.from_client, server.to_client, server.from_agent, server.to_agent):
        segment[packets.DATA] = 3
        segment[metrics.UNKNOWN_PACKET] = 1
    for histogram in (server.dial_seconds, server.frontend_write_seconds, server.connection_seconds):
        histogram.observe(0.02)
    server.dial_failed("no_agent")
    server.stream_error("from_agent", "Unavailable", "DATA")
    server.lease_delete(200, "", 0.1)
    server.lease_list(403, "Forbidden", 0.1)
    return server, ServerGauges(2, 1, 4, {"default": 1, "destHost": 0}, 5, 6)


def test_a_fresh_server_shows_only_what_is_present_from_the_start() -> None:
    shown = ours(ServerMetrics().render(ServerGauges(ready_backends={"default": 0})), SERVER)
    assert set(shown) == {"http_connections", "ready_backends", "ready_backend_connections", "culled_leases_count"}
    assert samples(shown["ready_backends"]) == {("default",): 0}


def test_a_used_server_shows_everything() -> None:
    server, gauges = full_server()
    shown = ours(server.render(gauges), SERVER)
    assert samples(shown["grpc_connections"]) == {("Proxy",): 2, ("Connect",): 1}
    assert samples(shown["http_connections"]) == {(): 4}
    assert samples(shown["ready_backends"]) == {("default",): 1, ("destHost",): 0}
    assert samples(shown["ready_backend_connections"]) == {(): 1}
    assert samples(shown["pending_backend_dials"]) == {(): 5}
    assert samples(shown["established_connections"]) == {(): 6}
    assert samples(shown["dial_failure_count"]) == {("no_agent",): 1}
    assert samples(shown["stream_packets"])["from_client", "DATA"] == 3
    assert samples(shown["stream_packets"])["to_agent", "Unknown"] == 1
    assert samples(shown["stream_errors"]) == {("from_agent", "Unavailable", "DATA"): 1}
    assert samples(shown["lease_delete"]) == {("200", ""): 1}
    assert samples(shown["lease_list"]) == {("403", "Forbidden"): 1}
    assert samples(shown["lease_delete_latency_seconds"])["200", "0.1"] == 1
    assert {"dial_duration_seconds", "frontend_write_duration_seconds", "connection_duration_seconds"} <= set(shown)


def test_a_gauge_that_was_used_stays_with_zero() -> None:
    server, gauges = full_server()
    server.render(gauges)
    shown = ours(server.render(ServerGauges()), SERVER)
    assert samples(shown["established_connections"]) == {(): 0}
    assert samples(shown["grpc_connections"]) == {("Proxy",): 0, ("Connect",): 0}


def test_a_gauge_used_between_two_scrapes_appears() -> None:
    server = ServerMetrics()
    server.from_client[packets.DIAL_REQ] += 1
    server.to_agent[packets.DIAL_REQ] += 1
    server.from_agent[packets.DIAL_RSP] += 1
    shown = ours(server.render(ServerGauges()), SERVER)
    assert {"grpc_connections", "pending_backend_dials", "established_connections"} <= set(shown)


def test_buckets_are_upstreams() -> None:
    server, gauges = full_server()
    server.stream_error("x", "y")
    agent = AgentMetrics()
    agent.dial_seconds.observe(1.0)
    agent.lease_list(200, "", 1.0)
    text = (server.render(gauges) + agent.render(AgentGauges())).decode()

    def bounds(name: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith(f"{name}_bucket")]
        return [line.partition('le="')[2].partition('"')[0] for line in lines]

    latency = ["1e-06", "1e-05", "0.0001", "0.005", "0.025", "0.1", "0.5", "2.5", "12.5", "+Inf"]
    assert bounds(f"{SERVER}dial_duration_seconds") == latency
    assert bounds(f"{SERVER}frontend_write_duration_seconds") == latency
    life = ["1", "5", "15", "30", "60", "300", "900", "1800", "3600", "14400", "43200", "86400", "+Inf"]
    assert bounds(f"{SERVER}connection_duration_seconds") == life
    go_default = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]
    assert bounds(f"{SERVER}lease_delete_latency_seconds") == go_default
    assert bounds(f"{AGENT}dial_duration_seconds") == ["0.005", "0.025", "0.1", "0.5", "2.5", "10", "30", "+Inf"]
    assert bounds(f"{AGENT}lease_list_latency_seconds") == ["0.005", "0.025", "0.1", "0.5", "2.5", "10", "30", "+Inf"]


def test_a_fresh_agent_shows_its_gauges_with_zero() -> None:
    text = AgentMetrics().render(AgentGauges())
    assert set(ours(text, AGENT)) == {"open_server_connections", "known_server_count", "open_endpoint_connections"}
    assert f"\n{AGENT}open_server_connections 0\n".encode() in text


def test_a_used_agent_shows_everything() -> None:
    agent = AgentMetrics()
    agent.to_agent[packets.DIAL_REQ] += 1
    agent.dial_seconds.observe(0.01)
    agent.endpoint_dial_failed("timeout")
    agent.stream_error("from_agent", "Unavailable", "DATA")
    agent.stream_error("to_agent", "Internal")
    agent.lease_list(200, "", 0.1)
    agent.lease_watch(200, "", 60.0)
    shown = ours(agent.render(AgentGauges(1, 2, 3)), AGENT)
    assert samples(shown["known_server_count"]) == {(): 2}
    assert samples(shown["endpoint_dial_failure"]) == {("timeout",): 1}
    assert samples(shown["server_connection_failure_count"]) == {("to_server",): 1, ("from_server",): 1}
    assert samples(shown["stream_errors"])["to_agent", "Internal", "Unknown"] == 1
    assert samples(shown["lease_lists"]) == {("200", ""): 1}
    assert samples(shown["lease_watches"]) == {("200", ""): 1}
    assert {"dial_duration_seconds", "lease_list_latency_seconds", "stream_packets"} <= set(shown)


def test_help_texts_that_upstreams_suite_compares_are_verbatim() -> None:
    agent = AgentMetrics()
    agent.endpoint_dial_failed("unknown")
    lines = agent.render(AgentGauges()).decode().splitlines()
    failures = "Number of failures dialing the remote endpoint, by reason (example: timeout)."
    assert f"# HELP {AGENT}endpoint_dial_failure_total {failures}" in lines
    assert f"# HELP {AGENT}open_endpoint_connections Current number of open endpoint connections." in lines


def test_certificates_are_reported_by_role_and_file_under_our_own_names() -> None:
    server = ServerMetrics()
    assert not ours(server.render(ServerGauges()), "umbilical_certificate_")
    server.certificates.expiry["frontend", "ca"] = 1_800_000_000.0
    server.certificates.reloaded("frontend", "failure")
    server.certificates.reloaded("frontend", "failure")
    shown = ours(server.render(ServerGauges()), "umbilical_certificate_")
    assert samples(shown["expiry_timestamp_seconds"]) == {("frontend", "ca"): 1_800_000_000}
    assert samples(shown["reloads"]) == {("frontend", "failure"): 2}


@given(st.text())
def test_any_label_value_survives_the_scrape(value: str) -> None:
    server = ServerMetrics()
    server.dial_failed(value)
    text = server.render(ServerGauges()).decode()
    line = next(line for line in text.split("\n") if line.startswith(f"{SERVER}dial_failure_count{{"))
    quoted = line.removeprefix(f'{SERVER}dial_failure_count{{reason="').removesuffix('"} 1')
    unescaped = quoted.replace("\\\\", "\0").replace("\\n", "\n").replace('\\"', '"').replace("\0", "\\")
    assert unescaped == value or "\0" in value


def test_the_process_shows_what_it_uses() -> None:
    shown = families(AgentMetrics().render(AgentGauges()))
    build = shown["umbilical_build_info"].samples[0]
    assert set(build.labels) == {"version", "python"}
    assert samples(shown["process_open_fds"])[()] == len(os.listdir("/proc/self/fd")) - 1
    assert samples(shown["process_resident_memory_bytes"])[()] > 1 << 20
    assert samples(shown["process_cpu_seconds"])[()] > 0
    born = samples(shown["process_start_time_seconds"])[()]
    assert 0 < born < time.time() + 1


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunnelPair]:
    """Upstream's pair after a failed dial, so that most of its families exist."""
    with upstream_pair(tmp_path_factory.mktemp("upstream")) as pair:
        pair.start()
        dial_in_vain(pair.frontend())
        wait_until(lambda: pair.agent_metric("endpoint_dial_failure_total") > 0, "the agent has failed to dial")
        yield pair


def dial_in_vain(frontend: Frontend) -> None:
    connection = frontend.connect()
    with connection:
        connection.settimeout(10)
        connection.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        while connection.recv(4096):
            pass


def shape_of(family: Metric) -> tuple[str, set[frozenset[str]]]:
    return family.type, {frozenset(sample.labels) for sample in family.samples}


def compared(theirs: dict[str, Metric], mine: dict[str, Metric]) -> None:
    assert set(theirs) <= set(mine)
    assert {name: shape_of(mine[name]) for name in theirs} == {name: shape_of(theirs[name]) for name in theirs}


@pytest.mark.real("proxy-server", "proxy-agent")
def test_names_types_and_labels_are_those_of_the_real_server(upstream: TunnelPair) -> None:
    _, text = http_get(f"http://127.0.0.1:{upstream.ports.server_admin}/metrics")
    server, gauges = full_server()
    compared(ours(text, SERVER), ours(server.render(gauges), SERVER))
    compared(ours(text, "process_open"), ours(server.render(gauges), "process_open"))


@pytest.mark.real("proxy-server", "proxy-agent")
def test_names_types_and_labels_are_those_of_the_real_agent(upstream: TunnelPair) -> None:
    _, text = http_get(f"http://127.0.0.1:{upstream.ports.agent_health}/metrics")
    agent = AgentMetrics()
    agent.to_agent[packets.DIAL_REQ] += 1
    agent.dial_seconds.observe(0.01)
    agent.endpoint_dial_failed("unknown")
    agent.stream_error("from_agent", "Unavailable", "DATA")
    compared(ours(text, AGENT), ours(agent.render(AgentGauges()), AGENT))


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_every_value_in_its_bucket(values: list[float]) -> None:
    bounds = (0.1, 1.0, 10.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    cumulative = [sum(histogram.counts[: index + 1]) for index in range(4)]
    assert cumulative == [sum(value <= bound for value in values) for bound in (*bounds, math.inf)]
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))


def test_families_come_in_the_order_of_their_names_and_samples_in_that_of_their_labels() -> None:
    out = Exposition()
    out.gauge("zebras", "How many.", ("stripes",), {("few",): 2, ("any",): 1.5})
    out.counter("apes_total", "How many\nby now.", (), {(): 3})
    assert out.render().decode().splitlines() == [
        "# HELP apes_total How many\\nby now.",
        "# TYPE apes_total counter",
        "apes_total 3",
        "# HELP zebras How many.",
        "# TYPE zebras gauge",
        'zebras{stripes="any"} 1.5',
        'zebras{stripes="few"} 2',
    ]


def test_a_family_without_a_sample_is_left_out() -> None:
    out = Exposition()
    out.gauge("empty", "Nothing.", (), {})
    out.histogram("unused", "Nothing.", (), {(): Histogram((1.0,))})
    assert out.render() == b"\n"


def test_samples_gather_by_their_labels() -> None:
    counts: dict[Labels, float] = {}
    for name in ("a", "b", "a"):
        add(counts, (name,))
    assert counts == {("a",): 2, ("b",): 1}
    seconds: dict[Labels, Histogram] = {}
    observe(seconds, ("a",), (1.0,), 0.5)
    observe(seconds, ("a",), (1.0,), 2.0)
    assert seconds["a",].counts == [1, 1]


def take(name: str, seconds: str = "") -> tuple[int, str]:
    status, body = asyncio.run(Profiler().take(name, seconds))
    return status, body.decode()


def test_every_link_of_the_index_leads_to_a_profile() -> None:
    status, page = take("")
    targets = re.findall(r'<a href="([^"]*)"', page)
    assert status == 200
    assert len(targets) == 3
    for target in targets:
        name, _, _ = target.partition("?")
        assert take(name, "0.05")[0] == 200


def test_a_busy_thread_shows_in_the_profile() -> None:
    stop = threading.Event()
    busy = threading.Thread(target=stop.wait, name="busy", args=(10,))
    busy.start()
    try:
        status, text = take("profile", "2")  # at least one look, also on a machine that is busy elsewhere
    finally:
        stop.set()
        busy.join()
    assert status == 200
    folded = [line for line in text.splitlines() if "threading.Event.wait" in line]
    assert folded
    assert all(line.rpartition(" ")[2].isdigit() for line in folded)


def test_only_one_profile_is_taken_at_a_time() -> None:
    async def scenario() -> tuple[int, int]:
        profiler = Profiler()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(profiler.take("profile", "300"))
            await asyncio.sleep(0)
            second = await profiler.take("profile", "0.05")
            first.cancel()
        third = await profiler.take("profile", "0.05")
        return second[0], third[0]

    assert asyncio.run(scenario()) == (500, 200)


def test_stacks_name_threads_and_tasks() -> None:
    async def wait_named() -> str:
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(asyncio.sleep(30), name="the-sleeper")
            await asyncio.sleep(0)
            text = pprof.stacks()
            sleeper.cancel()
        return text

    text = asyncio.run(wait_named())
    assert "thread MainThread:" in text
    assert "task the-sleeper" in text


def test_objects_are_counted_by_type() -> None:
    status, text = take("heap")
    assert status == 200
    assert "total" in text.splitlines()[0]
    assert "builtins.dict" in text


def test_what_only_go_can_do_is_refused() -> None:
    assert take("trace") == (501, "execution traces exist in Go only\n")
    assert take("symbol") == (200, "num_symbols: 0\n")
    assert take("nope") == (404, "Unknown profile\n")


def test_durations_are_bounded() -> None:
    assert pprof._duration("5") == 5.0
    assert pprof._duration("") == pprof._duration("x") == pprof._duration("-1") == pprof._duration("nan") == 30.0
    assert pprof._duration("1e9") == pprof._duration("inf") == 300.0
