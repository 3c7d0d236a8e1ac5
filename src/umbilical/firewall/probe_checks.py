"""The checks of `firewall check`: conditions for agents to use the port."""

import ipaddress
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from cryptography import x509

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.firewall.probe import HandshakeResult, ProbeResult, ServerAnswer, TcpState, asks_for_certificate

# An installation takes about 45 minutes: a certificate with less time left may expire during it.
SHORT: Final = timedelta(hours=1)
_TCP_FIXES: Final = {
    TcpState.REFUSED: "nothing listens there yet, or a filter rejects it: run `ss -ltn` on the bootstrap machine",
    TcpState.TIMED_OUT: "a filter drops the packets, such as a security group: umbilical firewall render",
    TcpState.NO_ROUTE: "this machine has no route to that network: `ip route get ADDRESS`",
    TcpState.NAME_NOT_FOUND: "give the bootstrap machine's internal address instead of a name",
    TcpState.FAILED: "see the error above",
}


def names_of(certificate: x509.Certificate) -> list[str]:
    """List the alternative names, which agents compare with the address they dial."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *(str(ip) for ip in names.get_values_for_type(x509.IPAddress))]


def _reached(result: ProbeResult) -> Verdict:
    place = f"{result.host} ({result.tcp.address})" if result.tcp.address not in ("", result.host) else result.host
    if result.tcp.state is TcpState.OPEN:
        return passed(f"{place} port {result.port} is open")
    detail = f": {result.tcp.detail}" if result.tcp.detail else ""
    return failed(f"{place} port {result.port}: {result.tcp.state.value}{detail}; {_TCP_FIXES[result.tcp.state]}")


def _speaks_tls(result: ProbeResult, anonymous: HandshakeResult) -> Verdict:
    if anonymous.certificate is not None:
        return passed(anonymous.version)
    # A TLS 1.2 server that requires a certificate aborts the handshake: it does use TLS.
    if asks_for_certificate(anonymous) or (result.agent is not None and result.agent.certificate is not None):
        return passed("the server rejects a handshake without a certificate")
    return failed(anonymous.detail)


def _names_the_host(result: ProbeResult, certificate: x509.Certificate) -> Verdict:
    names = names_of(certificate)
    shown = ", ".join(names) or "no name"
    if _covers(names, result.host):
        return passed(shown)
    return failed(f"the certificate is for {shown}; agents that dial {result.host} reject it")


def _is_valid_now(result: ProbeResult, certificate: x509.Certificate) -> Verdict:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if result.now < start:
        return failed(f"not valid before {start:%Y-%m-%d %H:%M} UTC; it is {result.now:%Y-%m-%d %H:%M} here")
    if result.now > end:
        return failed(f"expired at {end:%Y-%m-%d %H:%M} UTC; it is {result.now:%Y-%m-%d %H:%M} here")
    left = end - result.now
    shown = f"{int(left.total_seconds()) // 3600} h {int(left.total_seconds()) % 3600 // 60} min left"
    return warned(shown) if left < SHORT else passed(shown)


def _demands_certificates(_: ProbeResult, anonymous: HandshakeResult) -> Verdict:
    if anonymous.certificate is None and not asks_for_certificate(anonymous):
        return skipped("there was no TLS handshake")
    if anonymous.answer is ServerAnswer.ACCEPTED:
        return failed("the server accepted a connection without a certificate")
    if anonymous.answer is ServerAnswer.SILENT:
        return warned(f"unclear: {anonymous.detail}")
    return passed(f"without a certificate: {anonymous.detail}")


def _is_signed_by_authority(result: ProbeResult) -> Verdict:
    if result.files.authority is None:
        return skipped("no --ca")
    if result.agent is None:
        return skipped("TCP did not connect")
    if result.agent.certificate is not None:
        return passed(f"signed by {result.files.authority}")
    return failed(result.agent.detail)


def _takes_our_certificate(result: ProbeResult) -> Verdict:
    if result.files.certificate is None:
        return skipped("no --cert")
    if result.agent is None:
        return skipped("TCP did not connect")
    if result.agent.answer is ServerAnswer.ACCEPTED:
        return passed(f"{result.files.certificate} was accepted")
    if result.agent.answer is ServerAnswer.SILENT:
        return warned(f"unclear: {result.agent.detail}")
    return failed(result.agent.detail)


def _covers(names: list[str], host: str) -> bool:
    try:
        return any(ipaddress.ip_address(host) == _address(name) for name in names)
    except ValueError:
        return any(_matches(name.lower(), host.lower().rstrip(".")) for name in names)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _matches(name: str, host: str) -> bool:
    """A wildcard matches only the first label: RFC 6125 §6.4.3."""
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


def _with_tls(check: Callable[[ProbeResult, HandshakeResult], Verdict]) -> Callable[[ProbeResult], Verdict]:
    def verdict(result: ProbeResult) -> Verdict:
        return skipped("TCP did not connect") if result.anonymous is None else check(result, result.anonymous)

    return verdict


def _with_certificate(check: Callable[[ProbeResult, x509.Certificate], Verdict]) -> Callable[[ProbeResult], Verdict]:
    def verdict(result: ProbeResult) -> Verdict:
        for handshake in (result.anonymous, result.agent):
            if handshake is not None and handshake.certificate is not None:
                return check(result, handshake.certificate)
        return skipped("no certificate was seen")

    return verdict


CHECKS: Final[tuple[Check[ProbeResult], ...]] = (
    Check(
        "FW1",
        "the port is reachable by TCP",
        "agents dial it from every node; without agents no webhook in a pod is reachable, and the bootstrap stalls",
        "see the rule of your platform: umbilical firewall list",
        _reached,
    ),
    Check(
        "FW2",
        "the port answers with TLS",
        "another program listens there, or a device in between closes connections",
        "list the listeners: `ss -ltnp` on the bootstrap machine",
        _with_tls(_speaks_tls),
    ),
    Check(
        "FW3",
        "the certificate is for this address",
        "agents compare it with the address they dial, and do not connect",
        "issue one for that address: umbilical pki issue, or patch with --node-ip",
        _with_certificate(_names_the_host),
    ),
    Check(
        "FW4",
        "the certificate is valid for at least one more hour",
        "the tunnel's certificates are valid for one day; a longer installation loses its agents",
        "renew it: umbilical pki rotate; or start again with new Ignition configs",
        _with_certificate(_is_valid_now),
    ),
    Check(
        "FW5",
        "the server rejects clients without a certificate",
        "else everyone who reaches the port can act as an agent and get clients' traffic (CVE-2026-16242)",
        "start the server with --cluster-ca-cert (umbilical server run: --agent-ca)",
        _with_tls(_demands_certificates),
    ),
    Check(
        "FW6",
        "the CA of --ca has signed the server's certificate",
        "agents trust only this CA",
        "compare the CA of the agents' Secret with the one that signed the server's certificate",
        _is_signed_by_authority,
    ),
    Check(
        "FW7",
        "the server accepts the certificate of --cert",
        "the server rejects agents with this certificate",
        "umbilical pki verify on the directory; compare the CA with the server's --cluster-ca-cert",
        _takes_our_certificate,
    ),
)
