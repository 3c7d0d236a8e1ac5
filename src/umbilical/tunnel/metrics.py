"""Metrics of server and agent, with upstream's names, labels and buckets.

Counters are kept here; gauges are read from the real tables at each scrape, so that they cannot drift. HELP texts
that upstream's tests compare are copied from upstream.
"""

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from umbilical import __version__
from umbilical.record import Record
from umbilical.tunnel import descriptors
from umbilical.tunnel.exposition import Exposition, Histogram, Labels, add, observe
from umbilical.tunnel.log_queue import LOST_LINES
from umbilical.tunnel.status.state import STATES
from umbilical.wire.packets import TYPE_NAMES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_PACKET: Final = len(TYPE_NAMES)
"""Index of the count of packets of unknown types."""

_SERVER: Final = "konnectivity_network_proxy_server_"
_AGENT: Final = "konnectivity_network_proxy_agent_"
_SERVER_LATENCY: Final = (0.000001, 0.00001, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5)
_AGENT_LATENCY: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)
_CONNECTION_LIFE: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0)
_GO_DEFAULT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PACKET_LABELS: Final = (*TYPE_NAMES, "Unknown")
_DIAL_REQ: Final = 0
_DIAL_RSP: Final = 1


def _packet_counts() -> list[int]:
    return [0] * len(_PACKET_LABELS)


def _render_streams(
    out: Exposition, prefix: str, packets: dict[str, list[int]], errors: Mapping[Labels, float]
) -> None:
    samples: dict[Labels, float] = {
        (segment, _PACKET_LABELS[kind]): count
        for segment, counts in packets.items()
        for kind, count in enumerate(counts)
        if count
    }
    text = "Packets received and sent, by segment and packet type."
    out.counter(f"{prefix}stream_packets_total", text, ("segment", "packet_type"), samples)
    text = "Streams that failed, by segment, gRPC status code and type of the current packet."
    out.counter(f"{prefix}stream_errors_total", text, ("segment", "code", "packet_type"), errors)


def _render_faults(out: Exposition, counts: Mapping[str, int]) -> None:
    text = "Internal errors that closed one tunnel or one connection, by the place in the code."
    out.counter("umbilical_faults_total", text, ("place",), {(place,): count for place, count in counts.items()})


def _render_windows(out: Exposition, granted_bytes: int, budget_bytes: int) -> None:
    text = "Credit granted to peers above the first receive windows, in bytes."
    out.single_gauge("umbilical_window_granted_bytes", text, granted_bytes)
    text = "Maximum of umbilical_window_granted_bytes; at the maximum, windows do not grow."
    out.single_gauge("umbilical_window_budget_bytes", text, budget_bytes)


def render_state(out: Exposition, state: str) -> None:
    if state:
        text = "State as in /v1/status: 1 for the current one, 0 for the others."
        out.gauge("umbilical_state", text, ("state",), {(word,): float(word == state) for word in STATES})


class CertificateMetrics:
    """Expiry and reloads of certificates and CAs; certificates.py reports them."""

    def __init__(self) -> None:
        self.expiry: dict[Labels, float] = {}
        """Unix time by role and file, of the files in use."""
        self._reloads: dict[Labels, float] = {}

    def reloaded(self, role: str, result: str) -> None:
        """`result` is success or failure."""
        add(self._reloads, (role, result))

    def render(self, out: Exposition) -> None:
        text = "Expiry time of the certificate in use and of the last CA in the bundle, in Unix time."
        out.gauge("umbilical_certificate_expiry_timestamp_seconds", text, ("role", "file"), self.expiry)
        text = "Reloads of changed certificate files, by result."
        out.counter("umbilical_certificate_reloads_total", text, ("role", "result"), self._reloads)


class ServerGauges(Record):
    """Current numbers, counted in the server's tables."""

    proxy_streams: int = 0
    connect_streams: int = 0
    http_connections: int = 0
    ready_backends: Mapping[str, int] = MappingProxyType({})
    """By strategy; includes every configured one, also with 0."""
    pending_dials: int = 0
    established_connections: int = 0
    faults: Mapping[str, int] = MappingProxyType({})
    """Internal errors, by place."""
    window_granted_bytes: int = 0
    window_budget_bytes: int = 0
    refused_by_caps: Mapping[str, int] = MappingProxyType({})
    """Agents and dials that a limit refused, by limit."""
    lost_audit_records: int | None = None
    """None without an audit."""


class ServerMetrics:
    """Counters of a server. The packet lists are indexed by packet type; hot code increments them in place."""

    def __init__(self) -> None:
        self.from_client = _packet_counts()
        self.to_client = _packet_counts()
        self.from_agent = _packet_counts()
        self.to_agent = _packet_counts()
        self.dial_failures: dict[str, int] = {}
        self.dial_seconds = Histogram(_SERVER_LATENCY)
        self.frontend_write_seconds = Histogram(_SERVER_LATENCY)
        self.connection_seconds = Histogram(_CONNECTION_LIFE)
        self.culled_leases = 0
        self.certificates = CertificateMetrics()
        self._stream_errors: dict[Labels, float] = {}
        self._lease_deletes: dict[Labels, float] = {}
        self._lease_lists: dict[Labels, float] = {}
        self._lease_delete_seconds: dict[Labels, Histogram] = {}
        self._lease_list_seconds: dict[Labels, Histogram] = {}
        self._shown: set[str] = set()

    def dial_failed(self, reason: str) -> None:
        self.dial_failures[reason] = self.dial_failures.get(reason, 0) + 1

    def stream_error(self, segment: str, code: str, packet_type: str = "Unknown") -> None:
        """`code` is a gRPC code's name, such as Unavailable. The regular end of a stream is not an error."""
        add(self._stream_errors, (segment, code, packet_type))

    def lease_delete(self, status: int, reason: str, seconds: float) -> None:
        add(self._lease_deletes, (str(status), reason))
        observe(self._lease_delete_seconds, (str(status),), _GO_DEFAULT, seconds)

    def lease_list(self, status: int, reason: str, seconds: float) -> None:
        add(self._lease_lists, (str(status), reason))
        observe(self._lease_list_seconds, (str(status),), _GO_DEFAULT, seconds)

    def lease_culled(self) -> None:
        self.culled_leases += 1

    def render(self, gauges: ServerGauges, state: str = "") -> bytes:
        """`state` is empty for a worker: the state is that of all of them."""
        out = Exposition()
        render_state(out, state)
        self._render_gauges(out, gauges)
        self._render_dials(out)
        text = "Agents and dials that a limit of the server refused, by limit."
        refused: dict[Labels, float] = {(cap,): count for cap, count in gauges.refused_by_caps.items()}
        out.counter("umbilical_refused_by_limit_total", text, ("limit",), refused)
        if gauges.lost_audit_records is not None:
            text = "Audit records that were lost because the file took none in time."
            out.counter("umbilical_audit_records_lost_total", text, (), {(): gauges.lost_audit_records})
        self._render_leases(out)
        packets = {
            "from_client": self.from_client,
            "to_client": self.to_client,
            "from_agent": self.from_agent,
            "to_agent": self.to_agent,
        }
        _render_streams(out, _SERVER, packets, self._stream_errors)
        _render_faults(out, gauges.faults)
        _render_windows(out, gauges.window_granted_bytes, gauges.window_budget_bytes)
        self.certificates.render(out)
        render_process(out)
        return out.render()

    def _render_gauges(self, out: Exposition, gauges: ServerGauges) -> None:
        streams: dict[Labels, float] = {}
        if self._once_used("Proxy", gauges.proxy_streams or sum(self.from_client)):
            streams["Proxy",] = gauges.proxy_streams
        if self._once_used("Connect", gauges.connect_streams or sum(self.from_agent)):
            streams["Connect",] = gauges.connect_streams
        text = "Open streams, by gRPC method."
        out.gauge(f"{_SERVER}grpc_connections", text, ("service_method",), streams)
        text = "Open connections of HTTP CONNECT clients."
        out.single_gauge(f"{_SERVER}http_connections", text, gauges.http_connections)
        self._render_backends(out, gauges.ready_backends)
        if self._once_used("pending", gauges.pending_dials or self.to_agent[_DIAL_REQ]):
            text = "Current number of pending backend dial requests"
            out.single_gauge(f"{_SERVER}pending_backend_dials", text, gauges.pending_dials)
        if self._once_used("established", gauges.established_connections or self.from_agent[_DIAL_RSP]):
            text = "Current number of established end-to-end connections (post-dial)."
            out.single_gauge(f"{_SERVER}established_connections", text, gauges.established_connections)

    def _once_used(self, what: str, evidence: int) -> bool:
        """A gauge appears with its first use, and then stays."""
        if evidence:
            self._shown.add(what)
        return what in self._shown

    def _render_backends(self, out: Exposition, ready: Mapping[str, int]) -> None:
        text = "Number of konnectivity agent connected to the proxy server"
        by_strategy: dict[Labels, float] = {(strategy,): count for strategy, count in ready.items()}
        out.gauge(f"{_SERVER}ready_backends", text, ("proxy_strategy",), by_strategy)
        # Upstream shows the strategy that it updated last, which is random; we show the largest.
        text += ". DEPRECATED, please use ready_backends"
        out.single_gauge(f"{_SERVER}ready_backend_connections", text, max(ready.values(), default=0))

    def _render_dials(self, out: Exposition) -> None:
        text = "Number of dial failures observed. Multiple failures can occur for a single dial request."
        failures: dict[Labels, float] = {(reason,): count for reason, count in self.dial_failures.items()}
        out.counter(f"{_SERVER}dial_failure_count", text, ("reason",), failures)
        text = "Time from a dial request to the agent's response in seconds."
        out.histogram(f"{_SERVER}dial_duration_seconds", text, (), {(): self.dial_seconds})
        text = "Duration of writes to clients in seconds."
        out.histogram(f"{_SERVER}frontend_write_duration_seconds", text, (), {(): self.frontend_write_seconds})
        text = "Duration of connections in seconds, from the dial response to the close."
        out.histogram(f"{_SERVER}connection_duration_seconds", text, (), {(): self.connection_seconds})

    def _render_leases(self, out: Exposition) -> None:
        text = "Expired leases of other servers that this server deleted."
        out.counter(f"{_SERVER}culled_leases_count", text, (), {(): self.culled_leases})
        status, reason = "http_status_code", "reason"
        text = "Lease deletions requested from the Kubernetes API, by HTTP status and reason."
        out.counter(f"{_SERVER}lease_delete_total", text, (status, reason), self._lease_deletes)
        text = "Lease lists requested from the Kubernetes API, by HTTP status and reason."
        out.counter(f"{_SERVER}lease_list_total", text, (status, reason), self._lease_lists)
        text = "Duration of lease deletions in seconds."
        out.histogram(f"{_SERVER}lease_delete_latency_seconds", text, (status,), self._lease_delete_seconds)
        text = "Duration of lease lists in seconds."
        out.histogram(f"{_SERVER}lease_list_latency_seconds", text, (status,), self._lease_list_seconds)


class AgentGauges(Record):
    """Current numbers, counted in the agent's tables."""

    open_server_connections: int = 0
    known_server_count: int = 0
    open_endpoint_connections: int = 0
    faults: Mapping[str, int] = MappingProxyType({})
    window_granted_bytes: int = 0
    window_budget_bytes: int = 0
    denied_destinations: Mapping[str, int] = MappingProxyType({})
    """Dials that the rules refused, by kind."""


class AgentMetrics:
    """Counters of an agent. Segments are named as on the server: `to_agent` is what this agent received."""

    def __init__(self) -> None:
        self.from_agent = _packet_counts()
        self.to_agent = _packet_counts()
        self.dial_seconds = Histogram(_AGENT_LATENCY)
        self.endpoint_dial_failures: dict[str, int] = {}
        self.server_connection_failures: dict[str, int] = {}
        self.certificates = CertificateMetrics()
        self._stream_errors: dict[Labels, float] = {}
        self._lease_lists: dict[Labels, float] = {}
        self._lease_watches: dict[Labels, float] = {}
        self._lease_list_seconds: dict[Labels, Histogram] = {}

    def endpoint_dial_failed(self, reason: str) -> None:
        """`reason` is timeout, denied or unknown."""
        self.endpoint_dial_failures[reason] = self.endpoint_dial_failures.get(reason, 0) + 1

    def stream_error(self, segment: str, code: str, packet_type: str = "Unknown") -> None:
        """Also counts in the deprecated `server_connection_failure_count`."""
        add(self._stream_errors, (segment, code, packet_type))
        direction = "to_server" if segment == "from_agent" else "from_server"
        self.server_connection_failures[direction] = self.server_connection_failures.get(direction, 0) + 1

    def lease_list(self, status: int, reason: str, seconds: float) -> None:
        add(self._lease_lists, (str(status), reason))
        observe(self._lease_list_seconds, (str(status),), _AGENT_LATENCY, seconds)

    def lease_watch(self, status: int, reason: str, _seconds: float) -> None:
        """Upstream counts its watches as lists. The API server chooses the duration of a watch, so it is not kept."""
        add(self._lease_watches, (str(status), reason))

    def render(self, gauges: AgentGauges, state: str = "") -> bytes:
        out = Exposition()
        render_state(out, state)
        # Present from the start, with 0: upstream's tests wait for the first and the last.
        text = "Current number of open server connections."
        out.single_gauge(f"{_AGENT}open_server_connections", text, gauges.open_server_connections)
        text = "Number of servers that this agent connects to."
        out.single_gauge(f"{_AGENT}known_server_count", text, gauges.known_server_count)
        text = "Current number of open endpoint connections."
        out.single_gauge(f"{_AGENT}open_endpoint_connections", text, gauges.open_endpoint_connections)
        self._render_dials(out)
        text = "Dials that the agent's destination rules denied, by what denied them."
        denied: dict[Labels, float] = {(kind,): count for kind, count in gauges.denied_destinations.items()}
        out.counter("umbilical_destinations_denied_total", text, ("by",), denied)
        self._render_leases(out)
        packets = {"from_agent": self.from_agent, "to_agent": self.to_agent}
        _render_streams(out, _AGENT, packets, self._stream_errors)
        _render_faults(out, gauges.faults)
        _render_windows(out, gauges.window_granted_bytes, gauges.window_budget_bytes)
        self.certificates.render(out)
        render_process(out)
        return out.render()

    def _render_dials(self, out: Exposition) -> None:
        text = "Duration of dials to endpoints in seconds."
        out.histogram(f"{_AGENT}dial_duration_seconds", text, (), {(): self.dial_seconds})
        text = "Number of failures dialing the remote endpoint, by reason (example: timeout)."
        failures: dict[Labels, float] = {(reason,): count for reason, count in self.endpoint_dial_failures.items()}
        out.counter(f"{_AGENT}endpoint_dial_failure_total", text, ("reason",), failures)
        text = "Failures to send to or receive from a server. DEPRECATED, please use stream_errors_total"
        broken: dict[Labels, float] = {
            (direction,): count for direction, count in self.server_connection_failures.items()
        }
        out.counter(f"{_AGENT}server_connection_failure_count", text, ("direction",), broken)

    def _render_leases(self, out: Exposition) -> None:
        code, reason = "http_response_code", "reason"
        text = "Lists of server leases requested from the Kubernetes API, by HTTP status and reason."
        out.counter(f"{_AGENT}lease_lists_total", text, (code, reason), self._lease_lists)
        text = "Watches of server leases requested from the Kubernetes API, by HTTP status and reason."
        out.counter(f"{_AGENT}lease_watches_total", text, (code, reason), self._lease_watches)
        text = "Duration of lists of server leases in seconds."
        out.histogram(f"{_AGENT}lease_list_latency_seconds", text, (code,), self._lease_list_seconds)


def render_process(out: Exposition) -> None:
    build: dict[Labels, float] = {(__version__, ".".join(map(str, sys.version_info[:3]))): 1}
    out.gauge("umbilical_build_info", "Version of Umbilical and of Python.", ("version", "python"), build)
    text = "Log lines that were dropped because nobody read the log in time."
    out.counter("umbilical_log_lines_dropped_total", text, (), {(): LOST_LINES.total})
    try:
        _render_proc_files(out)
    except OSError:  # no /proc, or no free file descriptor: the other metrics are still served
        return


def _render_proc_files(out: Exposition) -> None:
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat_file:
        # The command's name is in parentheses and may contain spaces; the fields after it start at 3, proc(5).
        fields = stat_file.read().rpartition(")")[2].split()
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    cpu_seconds = (int(fields[11]) + int(fields[12])) / ticks
    out.counter("process_cpu_seconds_total", "User and system CPU time, in seconds.", (), {(): cpu_seconds})
    out.single_gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.", int(fields[20]))
    out.single_gauge("process_resident_memory_bytes", "Resident memory, in bytes.", int(fields[21]) * page)
    # Listing the folder itself opens one descriptor.
    out.single_gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")) - 1)
    out.single_gauge("process_max_fds", "Maximum number of open file descriptors.", descriptors.limit())
    started = _boot_time() + int(fields[19]) / ticks
    out.single_gauge("process_start_time_seconds", "Start time of the process in Unix time.", started)


def _boot_time() -> float:
    with open("/proc/stat", encoding="ascii", errors="replace") as stat_file:
        for line in stat_file:
            if line.startswith("btime "):
                return float(line.split()[1])
    return 0.0
