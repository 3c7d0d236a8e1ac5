"""What a broken connection between agents and servers means: a code of docs/errors.md, words, and what to do next.

Reasons come as text, ours or OpenSSL's; one table per side reads them. Log lines keep the reason as it is and put the
code before it, so that both can be searched for.
"""

import re
from typing import Final

from umbilical.record import Record

_FIREWALL: Final = "open the port between nodes and server (umbilical firewall render); on the server: ss -ltn"
_CLOCKS: Final = "compare date -u on both machines and let chrony agree: the next attempt then succeeds by itself"
_ROTATE: Final = "umbilical pki rotate --dir DIRECTORY, and copy the new files over: they are taken without a restart"
_SAME_AUTHORITY: Final = "give both ends certificates of one CA; compare: umbilical pki inspect FILE"

NEXT: Final = {
    "UMB207": "give the agent --server HOST:PORT, or the servers --publish-lease --advertise HOST:PORT",
    "UMB301": "look at the agents: their log says why they cannot connect; kubectl get pods -o wide of the DaemonSet",
    "UMB302": "nothing, if it comes back; else look at the pod and the node of this agent",
    "UMB303": _ROTATE,
    "UMB304": _CLOCKS,
    "UMB305": _SAME_AUTHORITY,
    "UMB306": "give the agent --agent-cert and --agent-key (umbilical agent run: --cert, --key)",
    "UMB307": "find out who calls: only agents belong to this port, not probes or load balancers that speak no TLS",
    "UMB308": "make the agent's flags agree with what the server asks for: token, audience, service account",
    "UMB309": "look at the agent's node and the network to it: stopped, starved, link down?",
    "UMB311": "start the server, or correct host and port: nothing listens there",
    "UMB312": _FIREWALL,
    "UMB313": "look at the routes of this machine: ip route get ADDRESS",
    "UMB314": "give the server by its address, or a resolver that knows the name",
    "UMB315": "correct HTTPS_PROXY, or add the server to NO_PROXY",
    "UMB319": "read the server's log at the same moment",
    "UMB321": _ROTATE,
    "UMB322": _CLOCKS,
    "UMB323": "make one for the address that agents dial: umbilical pki issue --kind server --address ADDRESS",
    "UMB324": _SAME_AUTHORITY,
    "UMB325": "check that this is the server's port for agents, and nothing in between ends TLS",
    "UMB331": _ROTATE,
    "UMB332": "compare this agent's certificate with the server's CA and clock: umbilical pki inspect FILE; date -u",
    "UMB333": "give the agent its certificate and key",
    "UMB334": "make token, audience and service account agree with what the server asks for",
    "UMB335": "mount a service account token that can be read",
    "UMB341": "nothing, if it connects again; else look at the server",
    "UMB342": "look at the server's machine and the network to it",
    "UMB345": _ROTATE,
    "UMB346": "give the agent identifiers that its identity allows, or add a line to --agent-identities",
    "UMB347": "correct the file: one line per identity, e.g. CN=konnectivity-agent default-route=true",
    "UMB401": "look at the endpoint: does its pod run, and listen on this port?",
    "UMB402": "look at the endpoint and at network policies between the agent's node and it",
    "UMB403": "find the client or endpoint that opened this tunnel and does not read; nobody else is held up",
    "UMB404": "dial an address, or give agents a resolver that knows the name",
    "UMB405": "start agents with --agent-identifiers=default-route=true, or with the networks that they reach",
    "UMB406": "look at this agent: is it stopped or starved? ps -o stat,pcpu on its node; restart its pod",
    "UMB407": "look at the network between server and this agent's node: link, firewall, routes",
    "UMB408": "nothing, if the call is repeated; else look at why the agent went, above",
    "UMB409": "look for loss between server and this agent's node: ip -s link, ethtool -S, MTU",
    "UMB410": "nothing: clients reach this server from now on",
    "UMB411": "stop the other server: ss -xlp shows it; two must not share one path",
    "UMB412": "look at this agent: starved, stopped, or behind a broken link? Others take its dials meanwhile",
    "UMB414": "give this client a certificate of its own, or name it in --frontend-identities",
    "UMB413": "correct the agent's identifiers: cidr=10.0.0.0/8 or cidr=fd00::/8",
}
"""Only the steps that a person at a terminal can take; the log of the drop-in names leaves them out."""


class Cause(Record):
    code: str
    text: str

    @property
    def next(self) -> str:
        return NEXT[self.code]

    @property
    def fields(self) -> dict[str, dict[str, str]]:
        """For `extra=` of a log call: members of a JSON line, and the next step for people."""
        return log_fields(self.code, self.next)


def log_fields(code: str, remedy: str) -> dict[str, dict[str, str]]:
    return {"fields": {"code": code, "next": remedy}}


# A code and a pattern, which `re` compiles and keeps when something breaks: a daemon starts sooner without.
_Rule = tuple[str, str]

_EXPIRED: Final = r"verification failed: certificate has expired"
_NOT_YET: Final = r"verification failed: certificate is not yet valid"
# The last resort of both tables of verification: everything else that OpenSSL says of a chain.
_UNTRUSTED: Final = r"verification failed"

_SERVER_SIDE: Final[tuple[_Rule, ...]] = (
    ("UMB303", _EXPIRED),
    ("UMB304", _NOT_YET),
    ("UMB305", _UNTRUSTED),
    ("UMB306", r"did not return a certificate"),
)
_GONE: Final[tuple[_Rule, ...]] = (("UMB309", r"^keepalive|timed out|takes no packets|no route to host|unreachable"),)
_AGENT_SIDE: Final[tuple[_Rule, ...]] = (
    ("UMB335", r"^service account token"),
    ("UMB315", r"HTTPS_PROXY"),
    ("UMB314", r"^TCP: lookup"),
    ("UMB311", r"^TCP: .*connection refused"),
    ("UMB313", r"^TCP: .*(unreachable|no route|network is down|cannot assign)"),
    ("UMB312", r"^TCP: .*timed out|^no answer within"),
    ("UMB321", _EXPIRED),
    ("UMB322", _NOT_YET),
    ("UMB323", r"(IP address|Hostname) mismatch"),
    ("UMB324", _UNTRUSTED),
    ("UMB331", r"alert certificate expired"),
    ("UMB333", r"alert certificate required"),
    ("UMB332", r"alert (unknown ca|bad certificate|certificate unknown|certificate revoked|unsupported certificate)"),
    ("UMB325", r"^TLS:|does not speak HTTP/2|TLS handshake"),
    ("UMB334", r"server ended the stream"),
)


def _find(rules: tuple[_Rule, ...], reason: str, otherwise: str) -> Cause:
    for code, pattern in rules:
        if re.search(pattern, reason, re.IGNORECASE):
            return Cause(code, reason)
    return Cause(otherwise, reason)


def of_failed_handshake(reason: str) -> Cause:
    """The server: somebody reached the agent port and did not get through TLS."""
    return _find(_SERVER_SIDE, reason, "UMB307")


def of_gone_agent(reason: str) -> Cause:
    """The server: an agent's connection ended, and not by anybody's plan."""
    return _find(_GONE, reason, "UMB302")


def of_failed_connect(reason: str) -> Cause:
    """The agent: an attempt to reach a server failed."""
    return _find(_AGENT_SIDE, reason, "UMB319")


def of_no_target() -> Cause:
    """The agent: it was given no server, and leases name none."""
    return Cause("UMB207", "no server to connect to: none was given, and no lease publishes an address")


def of_lost_server(reason: str) -> Cause:
    """The agent: the connection to a server ended."""
    silent = _find(_GONE, reason, "UMB302").code == "UMB309"
    return Cause("UMB342" if silent else "UMB341", reason)


_ORDERLY: Final = ("agent ended its stream", "server is leaving", "agent is leaving", "the server is leaving")


def is_orderly(reason: str) -> bool:
    """Whether an end was announced or asked for: worth a line, no warning."""
    return reason.startswith(_ORDERLY)
