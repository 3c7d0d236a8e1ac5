"""Log lines that show a cause, grouped by the program that writes them, and the search for them in logs of any size:
only a block that contains a match is split into lines.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from umbilical.bootstrap.analyze.tar_stream import Readable
from umbilical.checks.report import printable

BLOCK_BYTES: Final = 1 << 18
MAX_LINE_BYTES: Final = 1 << 16
# Bytes of a line that are shown on each side of a match.
MARGIN: Final = 140
# Bytes around a needle that a pattern is tried on. Refusals by SCCs are the longest lines.
BEFORE: Final = 1024
AFTER: Final = 2048
_SECRET: Final = re.compile(r"(?i)(bearer\s+|(?:token|password|secret)=)[^\s\"',;\\]+")


@dataclass(frozen=True)
class Evidence:
    """One line of a file: safe to print."""

    path: str
    line: int
    text: str
    address: str = ""
    """The endpoint that was dialled, if the signature finds one."""

    def __str__(self) -> str:
        return f'{printable(self.path)}:{self.line} "{self.text}"'


@dataclass(frozen=True)
class LogSignature:
    """A known line: it contains one of the needles and no exception, and the pattern matches."""

    name: str
    where: re.Pattern[str]
    """Paths of the files that can contain it."""
    needles: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    exceptions: tuple[bytes, ...] = ()

    def find(self, line: bytes) -> re.Match[bytes] | None:
        """Search only around a needle: a hostile line could make a regex slow."""
        if any(exception in line for exception in self.exceptions):
            return None
        for needle in self.needles:
            at = line.find(needle)
            match = self.pattern.search(line, max(0, at - BEFORE), at + AFTER) if at >= 0 else None
            if match is not None:
                return match
        return None


class LogMatches:
    """All matches of a signature: their number, the first and the last."""

    def __init__(self, first: Evidence) -> None:
        self.count = 1
        self.first = self.last = first

    def add(self, evidence: Evidence) -> None:
        self.count += 1
        self.last = evidence

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        return f"{self.first}\n{self.count} such lines, the last at {printable(self.last.path)}:{self.last.line}"


def search(path: str, stream: Readable, signatures: Sequence[LogSignature]) -> Iterator[tuple[str, Evidence]]:
    """Yield the name of each matching signature, with its line."""
    needles = sorted({needle for signature in signatures for needle in signature.needles})
    for number, line in _lines(stream, needles):
        for signature in signatures:
            match = signature.find(line)
            if match is not None:
                address = (match.groupdict().get("address") or b"").decode()
                yield signature.name, Evidence(path, number, excerpt(line, match.span()), address)


def excerpt(line: bytes, span: tuple[int, int]) -> str:
    """Show a line around the span; of a long span both ends, since the reason of an error is the last part."""
    if span[1] - span[0] > MARGIN:
        return shortened(quotable(line[slice(*span)].decode("utf-8", "replace")), 2 * MARGIN)
    start, end = max(0, span[0] - MARGIN), span[1] + MARGIN
    text = line[start:end].decode("utf-8", "replace")
    return quotable(f"{'...' if start else ''}{text}{'...' if end < len(line) else ''}")


def shortened(text: str, limit: int) -> str:
    """Replace the middle of a text that is too long."""
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-(limit // 2) :]}"


def quotable(text: str) -> str:
    """Escape a log line for printing, and hide what looks like a password."""
    return printable(_SECRET.sub(r"\1***", text).strip())


def _lines(stream: Readable, needles: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that contain a needle, with their numbers."""
    wanted = tuple(needles)
    number, rest = 0, b""
    while chunk := stream.read(BLOCK_BYTES):
        cut = chunk.rfind(b"\n") + 1
        block, rest = rest + chunk[:cut], (b"" if cut else rest) + chunk[cut:]
        if cut:
            yield from _lines_of(block, number, wanted)
            number += block.count(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            yield from _lines_of(rest, number, wanted)
            rest = b""
    yield from _lines_of(rest, number, wanted)


def _lines_of(block: bytes, number: int, needles: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    if not any(needle in block for needle in needles):
        return
    for offset, line in enumerate(block.split(b"\n"), start=number + 1):
        if any(needle in line for needle in needles):
            yield offset, line


class FileKind(Enum):
    """Kinds of files that a check needs; the value is the reason to skip the check without one."""

    RECORD = "no record of bootkube (bootstrap/services/bootkube.json)"
    JOURNAL = "no journal of bootkube (bootstrap/journals/bootkube.log)"
    KUBELET = "no journal of the bootstrap kubelet (bootstrap/journals/kubelet.log)"
    SERVER_LOG = "no log of the server (bootstrap/containers/konnectivity-server-*.log)"
    AGENT_LOG = "no log of an agent (control-plane/*/containers/konnectivity-agent-*.log)"
    APISERVER_LOG = "no log of the bootstrap kube-apiserver (bootstrap/containers/kube-apiserver-*.log)"
    EVENTS = "neither events nor a log of a kube-controller-manager (resources/events.json)"
    NAMESPACES = "no list of namespaces (resources/namespaces.json)"
    ROUTES = "no routes (bootstrap/network/ip-route.txt)"
    CERTIFICATES = "no certificates of the tunnel (rendered-assets/openshift)"
    DAEMON_SET = "no manifest of the agents (rendered-assets/openshift/manifests)"
    APISERVER_CONFIG = "no configuration of kube-apiserver (rendered-assets/openshift/kube-apiserver-bootstrap/config)"
    NETWORKS = "no configuration of the networks (rendered-assets/openshift/manifests/cluster-network-02-config.yml)"
    NATIVE_FILES = "no file of the installer's own tunnel (rendered-assets/openshift/konnectivity-server-pod.yaml)"


_BOOTKUBE_RECORD: Final = r"(^|/)bootkube\.json$"
_AGENT: Final = r"(^|/)containers/(.*/)?konnectivity-agent[^/]*\.log$"
_SERVER: Final = r"^bootstrap/containers/(.*/)?konnectivity-server[^/]*\.log$"
_APISERVER: Final = r"^bootstrap/containers/(.*/)?(bootstrap-)?kube-apiserver[^/]*\.log$"
_APISERVER_CONFIG: Final = r"^rendered-assets/openshift/kube-apiserver-bootstrap/config$"
_EVENTS: Final = r"^resources/events\.json$|/(bootstrap-)?kube-controller-manager[^/]*\.log$"
# unit-status/ contains the journals of failed units.
_JOURNAL: Final = r"^bootstrap/journals/(bootkube|journal)\.log(\.gz)?$|^unit-status/bootkube\.service\.log$"
_KUBELET: Final = r"^bootstrap/journals/(kubelet|journal)\.log(\.gz)?$|^unit-status/kubelet\.service\.log$"

WHERE: Final = {
    FileKind.RECORD: re.compile(_BOOTKUBE_RECORD),
    FileKind.JOURNAL: re.compile(_JOURNAL),
    FileKind.KUBELET: re.compile(_KUBELET),
    FileKind.SERVER_LOG: re.compile(_SERVER),
    FileKind.AGENT_LOG: re.compile(_AGENT),
    FileKind.APISERVER_LOG: re.compile(_APISERVER),
    FileKind.EVENTS: re.compile(_EVENTS),
    FileKind.NAMESPACES: re.compile(r"^resources/namespaces\.json$"),
    FileKind.ROUTES: re.compile(r"^bootstrap/network/ip-route\.txt$"),
    FileKind.CERTIFICATES: re.compile(r"^rendered-assets/openshift/(umbilical/pki|tls/konnectivity)/.*\.crt$"),
    FileKind.DAEMON_SET: re.compile(r"^rendered-assets/openshift/manifests/konnectivity-agent-daemonset\.yaml$"),
    FileKind.APISERVER_CONFIG: re.compile(_APISERVER_CONFIG),
    FileKind.NETWORKS: re.compile(r"^rendered-assets/openshift/manifests/cluster-network-02-config\.yml$"),
    FileKind.NATIVE_FILES: re.compile(
        r"^rendered-assets/openshift/(konnectivity-server-pod|egress-selector-config)\.yaml$"
    ),
}


def _signature(
    name: str, where: str, *needles: str, pattern: str = "", exceptions: tuple[bytes, ...] = ()
) -> LogSignature:
    literal = "|".join(re.escape(needle) for needle in needles)
    return LogSignature(
        name,
        re.compile(where),
        tuple(needle.encode() for needle in needles),
        re.compile((pattern or literal).encode()),
        exceptions,
    )


# An entry of the record contains the journal's last lines, so the records alone can be enough.
_STAGES: Final = f"{_JOURNAL}|{_BOOTKUBE_RECORD}"
_BOTH_ENDS: Final = f"{_AGENT}|{_SERVER}"
_FAILED_WEBHOOK: Final = r'failed calling webhook \\*"[^"]{0,200}".{0,500}?'
# kube-apiserver's calls to pods. A webhook with clientConfig.service is dialled as NAME.NAMESPACE.svc.
_BY_SERVICE: Final = r'Post \\*"https?://[^/:"?\\]{1,260}\.svc[:/?][^"]{0,300}": '
_BLOCKED: Final = rf"(?:failed calling webhook|conversion webhook for) .{{0,500}}?{_BY_SERVICE}"
_ENDPOINT: Final = r"dial tcp \[?(?P<address>[0-9A-Fa-f.:]{2,45}?)\]?:\d{1,5}: (?:[a-z]+: )?"
_NO_ROUTE: Final = r"(?:no route to host|network is unreachable)"
_NO_ANSWER: Final = r"(?:connection refused|i/o timeout|connection timed out)"
_GAVE_UP: Final = r"(?:context deadline exceeded|net/http: request canceled while waiting for connection)"
# With failurePolicy Ignore nothing is blocked.
_IGNORED: Final = "failing open"
CALLS: Final = ("call without route", "call without answer", "tolerated call")
# Go dials the machine itself if the host is empty.
_NO_HOST: Final = "dial tcp :"

SIGNATURES: Final = (
    # bootstrap-service-record.sh
    _signature("nested stage", _STAGES, "attempt to record the start of a stage without ending"),
    # our own shell library
    _signature("no address", _STAGES, "UMB112"),
    _signature("no image", _STAGES, "UMB116", "could not find apiserver-network-proxy"),
    _signature("address gone", _STAGES, "is no longer on this machine, but agents still dial it"),
    _signature("cleanup gave up", _STAGES, "tunnel's objects are still in the cluster"),
    # iproute2, openssl, bash
    _signature("no route", _STAGES, "RTNETLINK answers: Network is unreachable"),
    _signature("null address", _STAGES, "IP:null", "ip address:", pattern=r"IP:null\b|bad ip address:.*value=null\b"),
    _signature("no program", _STAGES, "command not found", pattern=r"[\w./-]{1,80}: command not found"),
    # oc
    _signature(
        "cleanup waits",
        _STAGES,
        "timed out waiting for the condition",
        pattern=r"timed out waiting for the condition on namespaces/\S{0,100}konnectivity",
    ),
    # kubelet
    _signature("image not pulled", _KUBELET, "ErrImagePull", "ImagePullBackOff", pattern=r"konnectivity-server"),
    # proxy-server
    _signature("server options", _SERVER, "failed to validate server options"),
    _signature("server files", _SERVER, "failed to load X509 key pair", "failed to run the agent server"),
    # kube-apiserver
    _signature("no egress file", _APISERVER, "unable to read egress selector configuration"),
    _signature("bad egress file", _APISERVER, "egress selector config", pattern=r"failed to (read|validate) egress.*"),
    _signature(
        "no socket",
        _APISERVER,
        ".socket: connect:",
        pattern=r"dial unix \S{1,200}\.socket: connect: (no such file|connection refused|permission denied)",
    ),
    # In http-connect mode kube-apiserver logs only the server's status; it is 500 if there is no agent.
    _signature(
        "no agent",
        f"{_APISERVER}|{_SERVER}",
        "No agent available",
        "Failed to get a backend",
        "proxy error from",
        pattern=r"No agent available|Failed to get a backend|proxy error from .{1,300}?, code 500\b",
    ),
    _signature(
        "url webhook",
        _APISERVER,
        "failed calling webhook",
        pattern=_FAILED_WEBHOOK + r'Post \\*"https?://(?![^/:"?]*\.svc[:/?"\\])[^/"\\]+',
    ),
    _signature(
        "no endpoint",
        _APISERVER,
        "failed calling webhook",
        pattern=_FAILED_WEBHOOK + r'(no endpoints available for service|service \\*"[^"]{0,100}" not found)',
    ),
    _signature(
        "call without route",
        f"{_APISERVER}|{_STAGES}",
        "failed calling webhook",
        "conversion webhook for",
        pattern=f"{_BLOCKED}{_ENDPOINT}{_NO_ROUTE}",
        exceptions=(_IGNORED.encode(),),
    ),
    _signature(
        "call without answer",
        f"{_APISERVER}|{_STAGES}",
        "failed calling webhook",
        "conversion webhook for",
        pattern=f"{_BLOCKED}(?:{_ENDPOINT}{_NO_ANSWER}|{_GAVE_UP})",
        exceptions=(_IGNORED.encode(),),
    ),
    # What blocks nothing: failurePolicy Ignore, and aggregated APIs.
    _signature(
        "tolerated call",
        _APISERVER,
        _IGNORED,
        "failing or missing response from",
        "error trying to reach service",
        pattern=rf"(?:{_IGNORED} .{{0,800}}?{_BY_SERVICE}|failing or missing response from .{{0,500}}?"
        rf"|error trying to reach service: )(?:{_ENDPOINT}(?:{_NO_ROUTE}|{_NO_ANSWER})|{_GAVE_UP})",
    ),
    # kube-apiserver logs its flags from verbosity 1 on; OpenShift's has 2.
    _signature("egress flag", _APISERVER, "FLAG: --egress-selector-config-file", pattern=r'config-file="[^"]+"'),
    _signature("no egress flag", _APISERVER, 'FLAG: --egress-selector-config-file=""'),
    _signature("proxy error", _APISERVER, "proxy error from"),
    _signature("egress argument", _APISERVER_CONFIG, "egress-selector-config-file"),
    _signature("egress key", _APISERVER_CONFIG, "egressSelectorConfiguration"),
    # admission of pods
    _signature(
        "scc refusal",
        _EVENTS,
        "unable to validate against any security context constraint",
        pattern=r"konnectivity-agent.*unable to validate against any security context constraint",
    ),
    _signature(
        "pod security refusal", _EVENTS, "violates PodSecurity", pattern=r"konnectivity-agent.*violates PodSecurity"
    ),
    # proxy-agent ("cannot connect once") and our own agent ("cannot connect to server")
    _signature(
        "port closed",
        _AGENT,
        "cannot connect once",
        "cannot connect to server",
        pattern=r"cannot connect (once|to server).*"
        r"(i/o timeout|[Dd]eadline ?[Ee]xceeded|[Nn]o route to host|[Nn]etwork is unreachable"
        r"|no answer within|timed out)",
        exceptions=(_NO_HOST.encode(),),
    ),
    _signature(
        "port refused",
        _AGENT,
        "cannot connect once",
        "cannot connect to server",
        pattern=r"cannot connect (once|to server).*([Cc]onnection refused)",
        exceptions=(_NO_HOST.encode(),),
    ),
    _signature(
        "no host",
        _AGENT,
        _NO_HOST,
        "lookup ",
        pattern=r"cannot connect (?:once|to server).*?(?:dial tcp :\d|lookup \S{0,253}(?: on \S{1,60})?: ).{0,60}",
    ),
    _signature(
        "wrong name",
        _AGENT,
        "x509:",
        "certificate is not valid for",
        "IP address mismatch",
        "Hostname mismatch",
        pattern=r"x509: (certificate is (valid for|not valid for any)|cannot validate certificate for).*"
        r"|(IP address|Hostname) mismatch, certificate is not valid for.*",
    ),
    _signature(
        "expired",
        _BOTH_ENDS,
        "certificate has expired",
        "certificate is not yet valid",
    ),
    _signature(
        "unknown authority",
        _BOTH_ENDS,
        "certificate signed by unknown authority",
        "unable to get local issuer certificate",
        "self-signed certificate in certificate chain",
        "certificate verify failed: certificate signature failure",
    ),
    _signature("agent without CA", _AGENT, "failed to read CA cert", "failed to load CA cert", pattern=r"CA cert ?:.*"),
)
