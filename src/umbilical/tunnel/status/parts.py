"""Parts that the documents of server and agent share: times, certificates, dials, windows."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from umbilical.tunnel import certificate_dates
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.recent import RecentTroubles, Trouble
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.status.state import Document

API_VERSION: Final = "umbilical.dev/v1"
"""Members may be added to this version; none is removed or changes its meaning."""


def moment(seconds_ago: float) -> str:
    return certificate_dates.shown(certificate_dates.moment_of(time.time() - seconds_ago))


def rounded(number: float) -> float:
    return round(number, 3)


def troubles(found: Iterable[Trouble], now: float, name: str) -> list[Document]:
    """The oldest first; `name` is the member for the peer's name."""
    return [
        {
            name: one.name,
            "at": moment(now - one.at),
            "agoSeconds": rounded(now - one.at),
            "code": one.code,
            "text": one.text,
        }
        for one in found
    ]


def dials(recent: RecentTroubles, now: float, names: Sequence[str]) -> Document:
    """`names` are the members for the endpoint, the peer that asked, and the agent, if there is one."""
    counts = recent.dials()
    failures = recent.since(list(recent.failures))
    listed = troubles(failures, now, names[0])
    for item, one in zip(listed, failures, strict=True):
        item[names[1]] = one.client or None
        if len(names) > 2:
            item[names[2]] = one.agent or None
        item["milliseconds"] = rounded(one.seconds * 1000)
    return {
        "windowSeconds": rounded(counts.seconds),
        "succeeded": counts.succeeded,
        "failed": sum(counts.failed.values()),
        "failedByCode": counts.failed,
        "failures": listed,
    }


def certificates(watched: Iterable[WatchedContext]) -> list[Document]:
    now = time.time()
    found = []
    for context in watched:
        for part, life in context.lives().items():
            begin, end = map(certificate_dates.seconds_of, (life.not_before, life.not_after))
            found.append(
                {
                    "role": context.role,
                    "part": part,
                    "path": str(context.path_of(part)),
                    "notBefore": certificate_dates.shown(life.not_before),
                    "notAfter": certificate_dates.shown(life.not_after),
                    "lifeSeconds": rounded(end - begin),
                    "leftSeconds": rounded(end - now),
                }
            )
    return found


def windows(budget: WindowBudget) -> Document:
    return {"grantedBytes": budget.granted_bytes, "budgetBytes": budget.total_bytes}
