"""The benchmark of the proxies: what is compared, and the arithmetic of its lines."""

from pathlib import Path

import pytest

import peers
from bench_load import Generator, LoadFailed
from bench_proxies import ROWS, OurProxy, Reading, SshForward, Tinyproxy, _round, contests, line, value
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
    assert line("socks5", row, ours, theirs).split() == ["socks5", "requests", "16", "20", "/s", "10", "/s", "2.00"]
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


@pytest.mark.real("umbilical-load")
def test_the_generator_goes_to_loopback_only() -> None:
    program = peers.binary("umbilical-load")
    assert program is not None
    with pytest.raises(LoadFailed, match="is not a loopback address"):
        Generator(program).measure(ROWS[0], ["--mode=socks5", "--proxy=192.0.2.1:1080"], 0.1)
