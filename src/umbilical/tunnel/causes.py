"""Maps the reason of a failed connection between agent and server to a code of docs/errors.md and a next step.

Reasons are texts, ours or OpenSSL's, matched by one table per side. Log lines contain the code and the unchanged
reason, so that both can be searched for.
"""

import re
from typing import Final

from umbilical.record import Record

_FIREWALL: Final = "open the port between nodes and server: umbilical firewall render; check on the server: ss -ltn"
_CLOCKS: Final = "compare date -u on both machines and correct the clock (chronyc makestep); the agent retries"
_ROTATE: Final = "umbilical pki rotate --dir DIRECTORY, then copy the new files; no restart is needed"
_SAME_AUTHORITY: Final = "use certificates of the same CA on both sides; compare: umbilical pki inspect FILE"

NEXT: Final = {
    "UMB207": "set --server HOST:PORT on the agent, or --publish-lease --advertise HOST:PORT on the servers",
    "UMB301": "check the agents: kubectl get pods -o wide of the DaemonSet; their log has the reason",
    "UMB302": "no action if it reconnects; otherwise check this agent's pod and node",
    "UMB303": _ROTATE,
    "UMB304": _CLOCKS,
    "UMB305": _SAME_AUTHORITY,
    "UMB306": "set --agent-cert and --agent-key on the agent (umbilical agent run: --cert, --key)",
    "UMB307": "find the client: only agents use this port; a probe or load balancer without TLS causes this",
    "UMB308": "compare the flags of agent and server: token, audience, service account",
    "UMB309": "check the agent's node and the network to it: process stopped, no CPU, link down?",
    "UMB310": "if this is a mistake, issue it a new certificate: umbilical pki issue",
    "UMB316": "replace the revocation lists by current ones of every CA; no restart is needed",
    "UMB311": "start the server, or correct host and port: nothing listens there",
    "UMB312": _FIREWALL,
    "UMB313": "check the routes of this machine: ip route get ADDRESS",
    "UMB314": "use the server's IP address, or a DNS server that knows the name",
    "UMB315": "correct HTTPS_PROXY, or add the server to NO_PROXY",
    "UMB317": "raise --max-agents if these agents are yours; their address is in this line",
    "UMB319": "read the server's log at the same moment",
    "UMB321": _ROTATE,
    "UMB322": _CLOCKS,
    "UMB323": "issue one for the address that agents dial: umbilical pki issue --kind server --address ADDRESS",
    "UMB324": _SAME_AUTHORITY,
    "UMB325": "check that this is the server's port for agents, and that no proxy in between terminates TLS",
    "UMB331": _ROTATE,
    "UMB332": "compare this agent's certificate with the server's CA and clock: umbilical pki inspect FILE; date -u",
    "UMB333": "set --agent-cert and --agent-key (umbilical agent run: --cert, --key)",
    "UMB334": "compare token, audience and service account with the server's flags",
    "UMB335": "mount a readable service account token",
    "UMB341": "no action if it reconnects; otherwise check the server",
    "UMB342": "check the server's machine and the network to it",
    "UMB345": _ROTATE,
    "UMB346": "set identifiers that the agent's identity allows, or add a line to the file of --agent-identities",
    "UMB347": "correct the file: one line per identity, e.g. CN=konnectivity-agent default-route=true",
    "UMB348": "correct the file: one rule per line, e.g. allow 10.0.0.0/8:443, deny 10.1.0.0/16",
    "UMB401": "check the endpoint: does its pod run and listen on this port?",
    "UMB402": "check the endpoint, and the network policies between the agent's node and it",
    "UMB403": "find the client or endpoint of this tunnel that does not read; other tunnels are not affected",
    "UMB404": "dial an IP address, or give agents a DNS server that knows the name",
    "UMB405": "start agents with --agent-identifiers=default-route=true, or with the networks they can reach",
    "UMB406": "check this agent on its node: ps -o stat,pcpu; restart its pod if it is stopped",
    "UMB407": "check the network between server and this agent's node: link, firewall, routes",
    "UMB408": "no action if the call is retried; otherwise see above why the agent disconnected",
    "UMB409": "check for packet loss between server and this agent's node: ip -s link, ethtool -S, MTU",
    "UMB410": "no action needed: clients reach this server from now on",
    "UMB411": "stop the other server: ss -xlp shows it; two servers cannot share one path",
    "UMB412": "check this agent: no CPU, stopped, network down? Other agents take its dials",
    "UMB414": "issue this client a certificate that is not an agent's, or add it to --frontend-identities",
    "UMB415": "if the client may reach it: --allow-destination RULE on the agent; else find the client",
    "UMB416": "find the client that dials so much, or raise the limit that the message names",
    "UMB420": "raise the limit of open files: LimitNOFILE= of the service, or ulimit -n",
    "UMB421": "find the host that connects and calls nothing: only agents use this port",
    "UMB422": "find the hosts that connect and are not admitted: ss -tn; restrict the port to the agents' networks",
    "UMB425": "report it with the trace: one tunnel or one peer was closed, the others go on",
    "UMB413": "correct the agent's identifiers: cidr=10.0.0.0/8 or cidr=fd00::/8",
    "UMB430": "check what reads the log: a container runtime, a pipe, a terminal that is stopped with Ctrl-S",
    "UMB431": "restart the service; if that does not help, start it without NOTIFY_SOCKET and WATCHDOG_USEC",
    "UMB432": "make room on that disk, or correct the rights of the file's folder; tunnels are not affected",
    "UMB440": "see the lines above, and the kernel's log for oom-kill: dmesg",
}
"""Next steps for people; the logs of the drop-in programs omit them."""


class FailureCause(Record):
    code: str
    text: str

    @property
    def next(self) -> str:
        return NEXT[self.code]

    @property
    def fields(self) -> dict[str, dict[str, str]]:
        """For `extra=` of a log call: members of a JSON line, and the next step."""
        return log_fields(self.code, self.next)


def log_fields(code: str, remedy: str) -> dict[str, dict[str, str]]:
    return {"fields": {"code": code, "next": remedy}}


# A code and a pattern, compiled at its first use: a daemon starts faster.
_Rule = tuple[str, str]

_EXPIRED: Final = r"verification failed: certificate has expired"
_NOT_YET: Final = r"verification failed: certificate is not yet valid"
# Last in both tables: any other verification error of OpenSSL.
_UNTRUSTED: Final = r"verification failed"

NO_CALL: Final = "no valid call"
DROPPED: Final = "dropped"
"""How the reasons begin for which a peer that is not admitted loses its connection."""

_SERVER_SIDE: Final[tuple[_Rule, ...]] = (
    ("UMB421", f"^{NO_CALL}|^{DROPPED}"),
    ("UMB303", _EXPIRED),
    ("UMB304", _NOT_YET),
    ("UMB310", r"certificate revoked"),
    ("UMB316", r"verification failed: .*CRL"),
    ("UMB305", _UNTRUSTED),
    ("UMB306", r"did not return a certificate"),
)
_GONE: Final[tuple[_Rule, ...]] = (
    ("UMB310", r"certificate was revoked"),
    ("UMB309", r"^keepalive|timed out|takes no packets|no route to host|unreachable"),
)
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


def _find(rules: tuple[_Rule, ...], reason: str, otherwise: str) -> FailureCause:
    for code, pattern in rules:
        if re.search(pattern, reason, re.IGNORECASE):
            return FailureCause(code, reason)
    return FailureCause(otherwise, reason)


def of_failed_handshake(reason: str) -> FailureCause:
    """Server: the TLS handshake of a client on the agent port failed."""
    return _find(_SERVER_SIDE, reason, "UMB307")


def is_of_stranger(reason: str) -> bool:
    """Whether the connection ended because its peer was not admitted."""
    return reason.startswith((NO_CALL, DROPPED))


def of_gone_agent(reason: str) -> FailureCause:
    """Server: an agent's connection ended unexpectedly."""
    return _find(_GONE, reason, "UMB302")


def of_failed_connect(reason: str) -> FailureCause:
    """Agent: an attempt to connect to a server failed."""
    return _find(_AGENT_SIDE, reason, "UMB319")


def of_no_target() -> FailureCause:
    """Agent: no server is configured, and no lease publishes one."""
    return FailureCause("UMB207", "no server to connect to: none is configured, and no lease publishes an address")


def of_lost_server(reason: str) -> FailureCause:
    """Agent: the connection to a server ended."""
    silent = _find(_GONE, reason, "UMB302").code == "UMB309"
    return FailureCause("UMB342" if silent else "UMB341", reason)


_ORDERLY: Final = ("agent ended its stream", "server is leaving", "agent is leaving", "the server is leaving")


def is_orderly(reason: str) -> bool:
    """Whether the end was announced: logged without a warning."""
    return reason.startswith(_ORDERLY)
