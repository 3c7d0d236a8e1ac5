"""The benchmark of the proxies: what is compared, and the arithmetic of its lines."""

import os
from pathlib import Path

import pytest

import peers
from bench_load import Generator, LoadFailed
from bench_processes import memory_megabytes
from bench_proxies import (
    ROWS,
    OurProxy,
    Reading,
    SshForward,
    Tinyproxy,
    _round,
    contests,
    line,
    memory_line,
    value,
    weigh,
)
from bench_rows import BenchRow
from bench_tunnel import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


def test_lines_are_the_medians_of_the_rounds_own_numbers() -> None:
    reading = {"rate": 10.0, "mb_per_second": 20.0}
    assert value(BenchRow("rate", "", "dial", 1), reading) == 10
    assert value(BenchRow("rate", "", "upload", 8), reading) == 20
    row = BenchRow("rate", "", "dial", 16)
    ours, theirs = [{"rate": rate} for rate in (10.0, 20.0, 90.0)], [{"rate": rate} for rate in (10.0, 10.0, 30.0)]
    assert line("socks5", row, ours, theirs).split() == [
        "socks5",
        "requests",
        "16",
        "20",
        "/s",
        "10",
        "/s",
        "2.00",
        "bar",
        ">=",
        "0.8",
        "yes",
    ]
    assert line("https", BenchRow("rate", "", "download", 1), [{"mb_per_second": 7.0}], []).split()[-2:] == [
        "7",
        "MB/s",
    ]
    assert {row.test for row in ROWS} == {"dial", "echo", "download", "upload"}


def test_each_of_ours_has_a_counterpart_of_its_own_protocol(pki: Pki, tmp_path: Path) -> None:
    for number, contest in enumerate(contests(pki, {})):
        ours = contest.ours(tmp_path / f"ours-{number}")
        assert isinstance(ours, OurProxy)
        theirs = {"ssh -D": SshForward, "tinyproxy": Tinyproxy}[contest.beside](tmp_path / f"theirs-{number}")
        assert ours.entrance[0] == theirs.entrance[0]


@pytest.mark.real("umbilical-load", "tinyproxy")
def test_a_round_measures_every_row(tmp_path: Path) -> None:
    program = peers.binary("umbilical-load")
    assert program is not None
    readings: dict[BenchRow, list[Reading]] = {row: [] for row in ROWS}
    _round(Tinyproxy(tmp_path / "t"), Generator(program), 0.1, readings)
    assert all(value(row, readings[row][0]) > 0 for row in ROWS)


def test_memory_is_compared_with_what_hypershift_requests() -> None:
    shown = memory_line("idle", {"rss": 40.0, "pss": 35.0, "uss": 31.45728})
    assert "rss   40.0" in shown
    assert shown.endswith("1.00 of HyperShift's request of 31.5 MB")


def test_the_memory_of_a_process_is_split_into_shared_and_its_own() -> None:
    held = memory_megabytes(os.getpid())
    assert held["rss"] >= held["pss"] >= held["uss"] > 0


@pytest.mark.real("umbilical-load")
def test_one_proxy_is_weighed_idle_with_connections_and_under_load(pki: Pki, tmp_path: Path) -> None:
    program = peers.binary("umbilical-load")
    assert program is not None
    lines = weigh(OurProxy("socks5", pki, tmp_path / "w", {}), Generator(program), 0.1, held=(2,))
    assert [line.split(":")[0].split(" rss")[0].strip() for line in lines] == [
        "memory, idle",
        "memory, 2 connections",
        "1,000 requests a second,  1 at a time",
        "1,000 requests a second, 16 at a time",
    ]


@pytest.mark.real("umbilical-load")
def test_the_generator_goes_to_loopback_only() -> None:
    program = peers.binary("umbilical-load")
    assert program is not None
    with pytest.raises(LoadFailed, match="is not a loopback address"):
        Generator(program).measure(ROWS[0], ["--mode=socks5", "--proxy=192.0.2.1:1080"], 0.1)
