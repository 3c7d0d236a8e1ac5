"""Collects facts from a log bundle in one pass: service records, known log lines, networks, certificates, manifests,
namespaces. A file with hostile or broken content adds a note; it never raises.
"""

import ipaddress
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from typing import Any, Final

from umbilical.bootstrap.analyze.log_bundle import READ_ERRORS, ROOTS, BundleFile, LogBundle
from umbilical.bootstrap.analyze.service_record import ServiceRecord, parse_record
from umbilical.bootstrap.analyze.signatures import (
    CALLS,
    SIGNATURES,
    WHERE,
    Evidence,
    FileKind,
    LogMatches,
    excerpt,
    search,
)
from umbilical.bootstrap.analyze.tar_stream import Readable
from umbilical.checks.report import printable
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError

# A record grows by four entries per failed run: every five seconds, for some hours.
MAX_RECORD_BYTES: Final = 64 << 20
MAX_JSON_BYTES: Final = 32 << 20
MAX_SMALL_BYTES: Final = 1 << 20
MAX_CERTIFICATES: Final = 64
MAX_RECORDS: Final = 64
MAX_ADDRESSES: Final = 256
MAX_NETWORKS: Final = 64
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
BOOTKUBE: Final = "bootkube"
_SERVICE: Final = re.compile(r"^bootstrap/services/([^/]+)\.json$")
_LONE_SERVICE: Final = re.compile(r"^(?:[^/]+/){0,4}([A-Za-z0-9@_-]+)\.json$")
_HOST: Final = re.compile(rb"--proxy-server-host=([^\s\"']*)")
_PORT: Final = re.compile(rb"--proxy-server-port=(\d{1,5})\b")
_NETWORK: Final = re.compile(r"[0-9A-Fa-f.:]{2,45}/\d{1,3}")
_NODE: Final = re.compile(r"^control-plane/([0-9A-Fa-f.:]{2,45})/")
_RECEIPT: Final = "rendered-assets/openshift/umbilical/receipt.json"


@dataclass(frozen=True)
class AgentTarget:
    """The address and port in the agents' manifest."""

    host: str
    port: str
    evidence: Evidence


@dataclass(frozen=True)
class TerminatingNamespace:
    """A namespace that is being deleted."""

    name: str
    since: str
    reasons: tuple[str, ...]


@dataclass
class BundleFacts:
    name: str
    records: dict[str, ServiceRecord] = field(default_factory=dict)
    record_paths: dict[str, str] = field(default_factory=dict)
    kinds: set[FileKind] = field(default_factory=set)
    """Kinds of files that the bundle contains."""
    matches: dict[str, LogMatches] = field(default_factory=dict)
    """By the name of the signature."""
    calls: dict[str, dict[str, LogMatches]] = field(default_factory=dict)
    """Failed calls of kube-apiserver to pods, by the name of the signature and the address (empty if not logged)."""
    routes: str = ""
    cluster_networks: list[Network] = field(default_factory=list)
    """Networks of pods and services."""
    nodes: set[str] = field(default_factory=set)
    """Addresses of the control-plane nodes that were gathered."""
    certificates: dict[str, list[Certificate]] = field(default_factory=dict)
    agents: AgentTarget | None = None
    terminating: list[TerminatingNamespace] = field(default_factory=list)
    gathered_at: datetime | None = None
    is_patched: bool = False
    notes: list[str] = field(default_factory=list)
    files: int = 0
    """Number of files that were used."""

    @property
    def bootkube(self) -> ServiceRecord | None:
        return self.records.get(BOOTKUBE)

    @property
    def end(self) -> datetime | None:
        """The latest known time: of the gathering, else of the last entry of a record."""
        entries = [entry.time for record in self.records.values() for entry in record.entries[-1:]]
        times = [time for time in entries if time is not None]
        return self.gathered_at or max(times, default=None)


def gather(bundle: LogBundle) -> BundleFacts:
    facts = BundleFacts(printable(bundle.path.name))
    for file in bundle.files():
        try:
            _Reader(facts, file).read()
        except READ_ERRORS as error:
            bundle.note(f"{file.path}: {error}")
    facts.notes += bundle.notes
    facts.gathered_at = bundle.gathered_at
    return facts


class _Reader:
    """Reads one file according to its kind."""

    def __init__(self, facts: BundleFacts, file: BundleFile) -> None:
        self._facts = facts
        self._file = file

    def read(self) -> None:
        path, facts = self._file.path, self._facts
        kinds = {kind for kind, where in WHERE.items() if where.search(path)}
        signatures = [signature for signature in SIGNATURES if signature.where.search(path)]
        service = service_of(path)
        facts.is_patched = facts.is_patched or path == _RECEIPT
        if (node := _NODE.match(path)) is not None and len(facts.nodes) < MAX_ADDRESSES:
            facts.nodes.add(node[1])
        if not (kinds or signatures or service):
            return
        stream: Readable = self._file.open()
        if service is not None:
            content = self._all(stream, MAX_RECORD_BYTES)
            if not self._take_record(service, content):
                return
            stream = BytesIO(content)
        facts.kinds |= kinds
        facts.files += 1
        for name, evidence in search(path, stream, signatures) if signatures else ():
            self._take_match(name, evidence)
        self._take_small(kinds, stream)

    def _take_match(self, name: str, evidence: Evidence) -> None:
        matches, key = self._facts.matches, name
        if name in CALLS:
            matches, key = self._facts.calls.setdefault(name, {}), evidence.address
        if key in matches:
            matches[key].add(evidence)
        elif len(matches) < MAX_ADDRESSES:
            matches[key] = LogMatches(evidence)

    def _take_record(self, service: str, content: bytes) -> bool:
        record = parse_record(content)
        is_named = self._file.path.startswith("bootstrap/services/") or service == BOOTKUBE
        # A copy of the records may contain other JSON files.
        if not is_named and not any(entry.phase and entry.timestamp for entry in record.entries):
            return False
        if record.fault:
            self._facts.notes.append(printable(f"{self._file.path}: {record.fault}"))
        if len(self._facts.records) < MAX_RECORDS:
            self._facts.records[service] = record
            self._facts.record_paths[service] = self._file.path
        return True

    def _take_small(self, kinds: set[FileKind], stream: Readable) -> None:
        facts = self._facts
        if FileKind.ROUTES in kinds:
            facts.routes = self._all(stream, MAX_SMALL_BYTES).decode("utf-8", "replace")
        if FileKind.CERTIFICATES in kinds and len(facts.certificates) < MAX_CERTIFICATES:
            self._take_certificates(self._all(stream, MAX_SMALL_BYTES))
        if FileKind.DAEMON_SET in kinds:
            facts.agents = agent_target(self._file.path, self._all(stream, MAX_SMALL_BYTES))
        if FileKind.NETWORKS in kinds:
            facts.cluster_networks = networks(self._all(stream, MAX_SMALL_BYTES).decode("utf-8", "replace"))
        if FileKind.NAMESPACES in kinds:
            facts.terminating = terminating_namespaces(self._all(stream, MAX_JSON_BYTES))

    def _take_certificates(self, pem: bytes) -> None:
        try:
            self._facts.certificates[self._file.path] = read_certificates(pem)
        except BundleError as error:
            self._facts.notes.append(printable(f"{self._file.path}: {error}"))

    def _all(self, stream: Readable, limit: int) -> bytes:
        parts, left = [], limit
        while left and (part := stream.read(left)):
            parts.append(part)
            left -= len(part)
        if not left:
            self._facts.notes.append(printable(f"{self._file.path}: only the first {limit >> 20} MiB were read"))
        return b"".join(parts)


def service_of(path: str) -> str | None:
    """Return the service of a record's path: in the bundle's services/, or outside the bundle's directories."""
    match = _SERVICE.match(path)
    if match is None and path.split("/", 1)[0] not in ROOTS:
        match = _LONE_SERVICE.match(path)
    return match[1] if match is not None else None


def networks(text: str) -> list[Network]:
    """Find all networks in CIDR form: of a manifest, or of a list of routes."""
    found = []
    for match in _NETWORK.findall(text)[:MAX_NETWORKS]:
        try:
            found.append(ipaddress.ip_network(match, strict=False))
        except ValueError:
            continue
    return found


def agent_target(path: str, manifest: bytes) -> AgentTarget | None:
    """Find the address that agents dial in the DaemonSet's arguments."""
    port = _PORT.search(manifest)
    for number, line in enumerate(manifest.split(b"\n"), start=1):
        host = _HOST.search(line)
        if host is not None:
            shown = Evidence(path, number, excerpt(line, host.span()))
            return AgentTarget(host[1].decode("utf-8", "replace"), port[1].decode() if port else "", shown)
    return None


def terminating_namespaces(content: bytes) -> list[TerminatingNamespace]:
    """Find namespaces of the tunnel that are being deleted, with the reasons."""
    try:
        items = json.loads(content)["items"]
        return [found for item in items if (found := _terminating(item)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _terminating(item: dict[str, Any]) -> TerminatingNamespace | None:
    metadata, status = item["metadata"], item.get("status") or {}
    labels = metadata.get("labels") or {}
    is_ours = labels.get("openshift.io/bootstrap-only") == "true" or "konnectivity" in str(metadata["name"])
    if not is_ours or status.get("phase") != "Terminating":
        return None
    conditions = [condition for condition in status.get("conditions") or [] if condition.get("status") == "True"]
    reasons = tuple(printable(f"{one.get('type')}: {one.get('message')}")[:300] for one in conditions[:4])
    return TerminatingNamespace(
        printable(str(metadata["name"])), printable(str(metadata.get("deletionTimestamp", ""))), reasons
    )
