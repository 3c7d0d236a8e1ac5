"""Results of pings as a table or JSON: a row for each, then certificates, then a summary."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from umbilical.checks.report import API_VERSION, printable
from umbilical.cli.pki.text import alternative_names, as_value, expiry
from umbilical.hosted.endpoint_tls import TlsFacts
from umbilical.hosted.route import HOPS, TOTAL, PingFailure, PingResult, PingSummary, summarize

UNREPORTED: Final = "not reported by this server"
_WIDTH: Final = 9
_WIDE: Final = 13
_NUMBER: Final = 4


def milliseconds(seconds: float) -> str:
    """Format with three significant digits: `0.42ms`, `12.3ms`, `1.24s`."""
    value = seconds * 1000
    if value >= 1000:
        return f"{seconds:.2f}s"
    return f"{value:.2f}ms" if value < 10 else f"{value:.1f}ms" if value < 100 else f"{value:.0f}ms"


def header(hops: Sequence[str]) -> str:
    return _row("#", [*hops, TOTAL], hops, "")


def columns(*, tls: bool, unix: bool) -> list[str]:
    """Return the names of the possible hops."""
    return [name for name in HOPS if not (name == "tls" and unix) and not (name == "endpoint tls" and not tls)]


def row(result: PingResult, hops: Sequence[str], unicode: bool) -> str:
    failed = result.failure.hop if result.failure is not None else None
    cells = [_cell(result, name, failed, "×" if unicode else "x") for name in hops]
    total = milliseconds(result.seconds) if result.is_ok else "-"
    return printable(_row(str(result.sequence), [*cells, total], hops, _verdict(result)))


def details(results: Sequence[PingResult], now: datetime) -> list[str]:
    """Return the lines below the table: certificates, and the agents that were used."""
    lines = []
    server, endpoint = _last(results, "server"), _last(results, "endpoint")
    if server is not None:
        lines.append(f"server    {tls_line(server, now, 'not accepted')}")
    if any(result.is_ok or result.agent for result in results):
        lines.append(f"agent     {_agents(results)}")
    if endpoint is not None:
        lines.append(f"endpoint  {tls_line(endpoint, now, 'not verified')}")
    return [printable(line) for line in lines]


def tls_line(facts: TlsFacts, now: datetime, doubt: str) -> str:
    trust = "" if facts.is_verified else f", {doubt}"
    certificate = facts.certificate
    if certificate is None:
        return f"{facts.version}, certificate not readable{trust}"
    names = ", ".join(alternative_names(certificate)) or "no names"
    issuer = "self-signed" if certificate.is_self_issued else f"signed by {certificate.issuer_name}"
    return f"{facts.version}, CN={certificate.common_name}, {names}, {issuer}, {expiry(certificate, now)}{trust}"


def summary_lines(summary: PingSummary, hops: Sequence[str]) -> list[str]:
    lines = [f"{summary.sent} sent, {summary.ok} ok, {summary.loss_percent:.0f}% lost"]
    if not summary.hops:
        return lines
    for title, word in (("min", "minimum"), ("avg", "average"), ("max", "maximum")):
        spreads = [summary.hops.get(name) for name in (*hops, TOTAL)]
        cells = ["-" if spread is None else milliseconds(getattr(spread, word)) for spread in spreads]
        lines.append(_row(title, cells, hops, ""))
    return lines


def failure_lines(failure: PingFailure) -> str:
    lines = (f"{failure.code} {failure.what}", f"  why: {failure.why}", f"  next: {failure.remedy}")
    return "\n".join(printable(line) for line in lines)


def as_json(endpoint: str, server: str, results: Sequence[PingResult], now: datetime) -> str:
    summary = summarize(results)
    value = {
        "apiVersion": API_VERSION,
        "kind": "PingReport",
        "endpoint": endpoint,
        "server": server,
        "serverTls": _tls_value(_last(results, "server"), now),
        "endpointTls": _tls_value(_last(results, "endpoint"), now),
        "pings": [_result_value(result) for result in results],
        "summary": _summary_value(summary),
    }
    return json.dumps(value, indent=2) + "\n"


def _row(number: str, cells: Sequence[str], hops: Sequence[str], rest: str) -> str:
    widths = [_WIDE if name == "endpoint tls" else _WIDTH for name in hops] + [_WIDTH]
    joined = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{number:>{_NUMBER}}{joined}  {rest}".rstrip()


def _cell(result: PingResult, name: str, failed: str | None, cross: str) -> str:
    hop = result.hop(name)
    if name == failed:
        return f"{cross} {milliseconds(hop.seconds)}" if hop is not None else cross
    return milliseconds(hop.seconds) if hop is not None else "-"


def _verdict(result: PingResult) -> str:
    agent = "" if result.agent is None else f", agent {result.agent}"
    if result.failure is None:
        return f"ok{agent}"
    # The rest is printed once, below the table.
    brief = result.failure.why.partition("; ")[0]
    return f"{result.failure.code} {result.failure.hop}{agent}: {brief}"


def _agents(results: Sequence[PingResult]) -> str:
    chosen: dict[str, int] = {}
    for result in results:
        if result.agent is not None:
            chosen[result.agent] = chosen.get(result.agent, 0) + 1
    return ", ".join(f"{agent} ({number})" for agent, number in chosen.items()) or UNREPORTED


def _last(results: Sequence[PingResult], member: str) -> TlsFacts | None:
    found: list[TlsFacts] = [facts for result in results if (facts := getattr(result, member)) is not None]
    return found[-1] if found else None


def _tls_value(facts: TlsFacts | None, now: datetime) -> dict[str, Any] | None:
    if facts is None:
        return None
    certificate = None if facts.certificate is None else as_value(facts.certificate, now)
    return {"version": facts.version, "verified": facts.is_verified, "certificate": certificate}


def _result_value(result: PingResult) -> dict[str, Any]:
    failure = result.failure
    shown = None
    if failure is not None:
        shown = {
            "hop": failure.hop,
            "code": failure.code,
            "reason": failure.reason,
            "why": failure.why,
            "next": failure.remedy,
        }
    hops = [{"name": hop.name, "milliseconds": _rounded(hop.seconds), "detail": hop.detail} for hop in result.hops]
    return {
        "sequence": result.sequence,
        "ok": result.is_ok,
        "milliseconds": _rounded(result.seconds),
        "agent": result.agent,
        "hops": hops,
        "failure": shown,
    }


def _summary_value(summary: PingSummary) -> dict[str, Any]:
    spreads = {
        name: {"min": _rounded(spread.minimum), "avg": _rounded(spread.average), "max": _rounded(spread.maximum)}
        for name, spread in summary.hops.items()
    }
    counts = {"sent": summary.sent, "ok": summary.ok, "lost": summary.lost, "lossPercent": summary.loss_percent}
    return {**counts, "milliseconds": spreads}


def _rounded(seconds: float) -> float:
    return round(seconds * 1000, 3)
