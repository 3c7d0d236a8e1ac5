"""The status of a set as tables: its state and reason first, then servers, agents, certificates, and what failed."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from umbilical.checks.report import printable
from umbilical.tunnel.status.state import DEGRADED, DOWN, HEALTHY, Document

_COLOURS: Final = {HEALTHY: "32", DEGRADED: "33", DOWN: "31"}
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_NONE: Final = "-"
MOST_FAILURES: Final = 3
"""In the table; wide shows all."""
LONGEST: Final = 110
"""Of a reason in a row; `-o json` has all of it."""

Row = Sequence[str]


def name_of(document: Document) -> str:
    match document["kind"]:
        case "ServerStatus":
            return f"server {document['server']['id']}"
        case "AgentStatus":
            return f"agent {document['agent']['id']}"
    return str(document["address"])


def as_table(found: Document, *, is_wide: bool, colour: bool) -> str:
    items = found["items"]
    servers = [item for item in items if item["kind"] == "ServerStatus"]
    agents = [item for item in items if item["kind"] == "AgentStatus"]
    parts = [
        _head(found, colour),
        _table(_server_rows(servers)),
        _table(_agent_rows(servers, is_wide=is_wide)),
        *[_table(_link_rows(agent)) for agent in agents],
        _table(_refused_rows(servers)),
        _table(_tunnel_rows(servers, agents)) if is_wide else "",
        _table(_failure_rows([*servers, *agents], is_wide=is_wide)),
        _table(_certificate_rows([*servers, *agents])),
    ]
    return "\n".join(part for part in parts if part)


def _head(found: Document, colour: bool) -> str:
    word = found["state"]
    styled = f"\x1b[{_COLOURS[word]}m{word}\x1b[0m" if colour and word in _COLOURS else word
    first, *others = [printable(reason["text"]) for reason in found["reasons"]]
    return "\n".join([f"{styled}: {first}", *[f"  {other}" for other in others]]) + "\n"


def _server_rows(servers: Sequence[Document]) -> Iterator[Row]:
    yield ("SERVER", "STATE", "AGENTS", "TUNNELS", "DIALS", "FAILED", "WORKERS", "UP", "VERSION")
    for one in servers:
        agents, dials, server = one["agents"], one["dials"], one["server"]
        expected = "" if agents["expected"] is None else f"/{agents['expected']}"
        yield (
            server["id"],
            one["state"],
            f"{agents['count']}{expected}",
            str(one["tunnels"]["count"]),
            f"{dials['succeeded'] + dials['failed']} in {span(dials['windowSeconds'])}",
            str(dials["failed"]),
            str(len(server["workers"])),
            span(server["uptimeSeconds"]),
            f"{server['version']} {server['form']}",
        )


def _agent_rows(servers: Sequence[Document], *, is_wide: bool) -> Iterator[Row]:
    """A row for each agent, over all servers and workers."""
    wide = ("ADDRESS", "IDENTITY", "IDENTIFIERS", "PROGRAM", "FORM", "LAST ERROR") if is_wide else ()
    yield ("AGENT", "NODE", "STATE", "CONNECTED TO", "LOAD", "ROUND TRIP", "SINCE", *wide)
    links: dict[str, list[Document]] = {}
    for item in [item for server in servers for item in server["agents"]["items"]]:
        links.setdefault(item["id"], []).append(item)
    total = sum(len(server["server"]["workers"]) for server in servers)
    for name, found in links.items():
        first = found[0]
        states = [one["state"] for one in found if one["state"] != "ready"]
        trips = [one["roundTripMilliseconds"] for one in found if one["roundTripMilliseconds"]]
        errors = [one["lastError"] for one in found if one["lastError"]]
        more = (
            first["address"],
            ",".join(first["identity"]) or _NONE,
            _announced(first["identifiers"]),
            first["program"] or _NONE,
            first["form"],
            _trouble(min(errors, key=lambda one: one["agoSeconds"])) if errors else _NONE,
        )
        yield (
            name,
            first["node"] or _NONE,
            states[0] if states else "ready",
            f"{len({one['server'] for one in found})}/{total}",
            str(sum(one["load"] for one in found)),
            f"{max(trips):.1f}ms" if trips else _NONE,
            span(max(one["connectedSeconds"] for one in found)),
            *(more if is_wide else ()),
        )
    for one in [one for server in servers for one in server["agents"]["lost"]]:
        yield (one["id"], _NONE, "LOST", f"0/{total}", _NONE, _NONE, f"{span(one['agoSeconds'])} ago", *_blank(wide))


def _blank(columns: Row) -> Row:
    return [_NONE] * len(columns)


def _announced(identifiers: Document) -> str:
    found = [f"{kind}={value}" for kind in ("ipv4", "ipv6", "host", "cidr") for value in identifiers[kind]]
    return ",".join([*found, *(["default-route"] if identifiers["defaultRoute"] else [])]) or _NONE


def _link_rows(agent: Document) -> Iterator[Row]:
    """The servers of one agent that was asked itself."""
    yield (f"AGENT {agent['agent']['id']} TO", "ADDRESS", "STATE", "LOAD", "ROUND TRIP", "SINCE", "LAST ERROR")
    for one in agent["servers"]["items"]:
        trip = f"{one['roundTripMilliseconds']:.1f}ms" if one["roundTripMilliseconds"] else _NONE
        yield (one["id"], one["address"], one["state"], str(one["load"]), trip, span(one["connectedSeconds"]), _NONE)
    for one in agent["servers"]["unreached"]:
        error = _told(one["error"]) if one["error"] else _NONE
        yield ("?", one["address"], one["state"], _NONE, _NONE, _NONE, error)


def _refused_rows(servers: Sequence[Document]) -> Iterator[Row]:
    yield ("REFUSED ON THE PORT FOR AGENTS", "AGO", "WHY")
    for server in servers:
        for one in server["agents"]["refused"][-MOST_FAILURES:]:
            yield (one["address"], span(one["agoSeconds"]), _told(one))


def _tunnel_rows(servers: Sequence[Document], agents: Sequence[Document]) -> Iterator[Row]:
    yield ("CLIENT", "ENDPOINT", "AGENT", "SERVER", "STATE", "UP", "DOWN", "AGE", "SLOW")
    for one in [item for server in servers for item in server["tunnels"]["items"]]:
        agent = one["agent"] or (f"by {one['relay']}" if one["relay"] else _NONE)
        sizes = (size(one["bytesFromClient"]), size(one["bytesToClient"]))
        rest = (one["state"], *sizes, span(one["ageSeconds"]), one["slow"] or _NONE)
        yield (one["client"] or _NONE, one["endpoint"], agent, one["server"], *rest)
    for document in agents:
        for one in document["tunnels"]["items"]:
            sizes = (size(one["bytesToEndpoint"]), size(one["bytesFromEndpoint"]))
            rest = (one["state"], *sizes, span(one["ageSeconds"]), one["slow"] or _NONE)
            yield (_NONE, one["endpoint"], document["agent"]["id"], one["server"], *rest)


def _failure_rows(documents: Sequence[Document], *, is_wide: bool) -> Iterator[Row]:
    yield ("FAILED DIAL", "AGO", "TOOK", "BY", "WHY")
    for document in documents:
        failures = document["dials"]["failures"]
        for one in failures if is_wide else failures[-MOST_FAILURES:]:
            by = one.get("agent") or (f"for {one['server']}" if "server" in one else _NONE)
            yield (one["endpoint"], span(one["agoSeconds"]), f"{one['milliseconds']:.0f}ms", by, _told(one))


def _certificate_rows(documents: Sequence[Document]) -> Iterator[Row]:
    yield ("CERTIFICATE", "OF", "ENDS IN", "AT", "FILE")
    for document in documents:
        for one in document["certificates"]:
            left = one["leftSeconds"]
            ends = span(left) if left > 0 else f"ENDED {span(-left)} AGO"
            yield (f"{one['role']} {one['part']}", name_of(document), ends, one["notAfter"], one["path"])


def _trouble(one: Document) -> str:
    return f"{span(one['agoSeconds'])} ago {_told(one)}"


def _told(one: Document) -> str:
    text = f"{one['code']} {one['text']}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _table(rows: Iterable[Row]) -> str:
    """Empty if there are only heads."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if len(cells) < 2:
        return ""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines) + "\n"


def span(seconds: float) -> str:
    """`0.4s`, `40s`, `12m`, `3h`, `20d`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= 2 * length:
            return f"{int(seconds / length)}{unit}"
    return f"{int(seconds)}s"


def size(count: int) -> str:
    """`812`, `4.7k`, `1.2M`."""
    for unit, length in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= length:
            return f"{count / length:.1f}{unit}"
    return str(count)


def cut(line: str, columns: int) -> str:
    """Shorten a line to the terminal; styles have no width."""
    plain = _STYLE.sub("", line)
    return line if len(plain) <= columns else f"{plain[: columns - 1]}…"
