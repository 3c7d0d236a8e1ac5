"""The table of states: each rule alone, their order, and that a set is judged by its members."""

import pytest

from umbilical.tunnel.status.state import (
    DEGRADED,
    DOWN,
    HEALTHY,
    IDLE,
    CertificateLife,
    JudgedState,
    StateFacts,
    ending_limit,
    judge,
    worst,
)

DAY = 86400.0


def facts(**values: object) -> StateFacts:
    healthy = {"peer": "agent", "connected": 3, "succeeded_dials": 500, "window_seconds": 300.0, "open_tunnels": 7}
    return StateFacts(**(healthy | values))  # type: ignore[arg-type]


def ends_in(left: float, life: float = DAY) -> tuple[CertificateLife, ...]:
    return (CertificateLife("agent-listener certificate", life, left),)


LOST = ("agent a1 was lost 40 s ago: UMB302 connection reset by peer",)
TABLE = [
    ("well", facts(), HEALTHY, "all-well", "3 agents connected, 7 tunnels open"),
    ("one of each", facts(connected=1, open_tunnels=1), HEALTHY, "all-well", "1 agent connected, 1 tunnel open"),
    ("dials were enough", facts(open_tunnels=0), HEALTHY, "all-well", "3 agents connected, 0 tunnels open"),
    (
        "nobody asked",
        facts(open_tunnels=0, succeeded_dials=0),
        IDLE,
        "no-traffic",
        "3 agents connected; no tunnel is open, and nobody dialled in the last 5 min",
    ),
    ("alone", facts(connected=0, expected=3), DOWN, "no-agent", "no agent is connected"),
    (
        "alone after a loss",
        facts(connected=0, missing=LOST),
        DOWN,
        "no-agent",
        f"no agent is connected; {LOST[0]}",
    ),
    (
        "alone and refusing",
        facts(connected=0, last_refusal="10.0.0.7:1, 3 s ago, UMB305 untrusted"),
        DOWN,
        "no-agent",
        "no agent is connected; the last that tried was refused: 10.0.0.7:1, 3 s ago, UMB305 untrusted",
    ),
    (
        "unusable",
        facts(usable=False),
        DOWN,
        "no-usable-agent",
        "3 agents connected, but no configured strategy would choose one",
    ),
    ("as expected", facts(expected=3), HEALTHY, "all-well", None),
    ("fewer than expected", facts(expected=4), DEGRADED, "agent-missing", "3 of 4 agents connected"),
    ("lost", facts(expected=4, missing=LOST), DEGRADED, "agent-missing", f"3 of 4 agents connected: {LOST[0]}"),
    ("lost, none expected", facts(missing=LOST), DEGRADED, "agent-missing", LOST[0]),
    ("many lost", facts(missing=("a", "b", "c", "d", "e")), DEGRADED, "agent-missing", "a; b; c; and 2 more"),
    (
        "a server of the set",
        facts(peer="server", connected=2, expected=3, missing=("s3:8091 is not reached: UMB311 refused",)),
        DEGRADED,
        "server-missing",
        "2 of 3 servers connected: s3:8091 is not reached: UMB311 refused",
    ),
    ("no server", facts(peer="server", connected=0), DOWN, "no-server", "no server is connected"),
    ("leaving", facts(leaving="the agent is draining"), DEGRADED, "leaving", "the agent is draining"),
    ("a tenth is left", facts(certificates=ends_in(DAY / 10)), HEALTHY, "all-well", None),
    (
        "less than a tenth is left",
        facts(certificates=ends_in(DAY / 10 - 1)),
        DEGRADED,
        "certificate-ends",
        "agent-listener certificate ends in 2 h",
    ),
    (
        "over",
        facts(certificates=ends_in(-90.0)),
        DEGRADED,
        "certificate-ends",
        "agent-listener certificate has expired 90 s ago",
    ),
    ("a long-lived CA", facts(certificates=ends_in(31 * DAY, 3650 * DAY)), HEALTHY, "all-well", None),
    (
        "a long-lived CA at its end",
        facts(certificates=ends_in(29 * DAY, 3650 * DAY)),
        DEGRADED,
        "certificate-ends",
        "agent-listener certificate ends in 29 days",
    ),
    ("one in a hundred", facts(succeeded_dials=495, failed_dials=5), HEALTHY, "all-well", None),
    (
        "more than one in a hundred",
        facts(succeeded_dials=494, failed_dials=6, commonest_failure="UMB401: connection refused"),
        DEGRADED,
        "dials-fail",
        "6 of 500 dials failed in the last 5 min, most with UMB401: connection refused",
    ),
    ("two say little", facts(succeeded_dials=0, failed_dials=2), HEALTHY, "all-well", None),
    ("all three", facts(succeeded_dials=0, failed_dials=3), DEGRADED, "dials-fail", None),
    ("ninety percent", facts(budget_used_bytes=90, budget_bytes=100), HEALTHY, "all-well", None),
    (
        "above",
        facts(budget_used_bytes=91, budget_bytes=100),
        DEGRADED,
        "memory-budget",
        "91% of the memory for receive windows is granted: 91 of 100 bytes",
    ),
    ("no budget", facts(budget_used_bytes=1, budget_bytes=0), HEALTHY, "all-well", None),
    (
        "a lease",
        facts(lease_problem="the lease of s1 is not renewed yet"),
        DEGRADED,
        "lease-not-renewed",
        "the lease of s1 is not renewed yet",
    ),
]


@pytest.mark.parametrize(("given", "word", "rule", "text"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_state_is_one_word_with_its_reason(given: StateFacts, word: str, rule: str, text: str | None) -> None:
    found = judge(given)
    assert (found.word, found.reasons[0].rule) == (word, rule)
    if text is not None:
        assert found.reasons[0].text == text


def rules(found: JudgedState) -> list[str]:
    return [reason.rule for reason in found.reasons]


def test_all_reasons_are_given_and_the_worst_comes_first() -> None:
    bad = {"failed_dials": 500, "certificates": ends_in(1.0), "leaving": "it leaves", "expected": 9}
    assert rules(judge(facts(**bad))) == ["agent-missing", "leaving", "certificate-ends", "dials-fail"]
    assert rules(judge(facts(connected=0, **bad))) == ["no-agent", "leaving", "certificate-ends", "dials-fail"]
    assert judge(facts(connected=0, **bad)).word == DOWN


def test_the_first_certificate_to_end_is_named() -> None:
    lives = (CertificateLife("agent ca", DAY, 500.0), CertificateLife("agent certificate", DAY, 50.0))
    assert judge(facts(certificates=lives)).reasons[0].text == "agent certificate ends in 50 s"


@pytest.mark.parametrize(("life", "limit"), [(DAY, DAY / 10), (100 * DAY, 10 * DAY), (3650 * DAY, 30 * DAY)])
def test_an_end_is_near_in_the_last_tenth_or_month(life: float, limit: float) -> None:
    assert ending_limit(life) == limit


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([HEALTHY], HEALTHY),
        ([IDLE, IDLE], IDLE),
        ([IDLE, HEALTHY], HEALTHY),
        ([HEALTHY, DOWN], DEGRADED),
        ([IDLE, DEGRADED], DEGRADED),
        ([DOWN, DEGRADED], DEGRADED),
        ([DOWN, DOWN], DOWN),
    ],
)
def test_a_set_is_down_only_if_all_of_it_is(words: list[str], expected: str) -> None:
    assert worst(words) == expected
