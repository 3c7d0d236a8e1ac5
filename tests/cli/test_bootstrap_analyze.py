"""`umbilical bootstrap analyze`: what a user sees, and what scripts can rely on."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.log_bundles import BEFORE, JOURNAL, STAGES, BundleBuilder, Record, good_record, tar_of

from umbilical.cli import main

BROKEN = Record().start().done(*BEFORE).fails("konnectivity-certs", "UMB112 cannot find the bootstrap node IP")


def analyze(*arguments: object) -> int:
    return main.run(["bootstrap", "analyze", *map(str, arguments)])


def test_the_first_line_names_the_stage_and_the_cause_follows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = BundleBuilder(BROKEN).log(JOURNAL, "UMB112 cannot find the bootstrap node IP").archive(tmp_path)
    assert analyze(path) == 1
    captured = capfd.readouterr()
    lines = captured.out.splitlines()
    assert "bootkube failed in stage konnectivity-certs at 2026-11-15 14:00:09Z" in lines[0]
    causes = [line for line in lines if " A0" in line[:8]]
    assert " A01 " in causes[0]
    assert " A03 the node found its own address" in causes[1]
    assert "--node-ip" in captured.out
    assert captured.err == ""


def test_a_good_bundle_exits_with_zero(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert analyze(BundleBuilder(good_record()).archive(tmp_path)) == 0
    assert "bootkube ended well" in capfd.readouterr().out


def test_programs_get_the_verdict_and_the_findings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert analyze(BundleBuilder(BROKEN).archive(tmp_path), "-o", "json") == 1
    value = json.loads(capfd.readouterr().out)
    assert value["kind"] == "BundleAnalysis"
    assert value["verdict"]["stage"] == "konnectivity-certs"
    assert value["findings"][0]["id"] == "A01"
    assert value["summary"]["failed"] == 2


def test_build_servers_get_junit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert analyze(BundleBuilder(BROKEN).archive(tmp_path), "-o", "junit") == 1
    root = ElementTree.fromstring(capfd.readouterr().out)
    assert root.get("failures") == "2"


def test_a_directory_and_a_copy_of_the_records_work_as_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "openshift"
    copy.mkdir()
    (copy / "bootkube.json").write_bytes(BROKEN.content())
    for path in (BundleBuilder(BROKEN).unpack(tmp_path), copy, copy / "bootkube.json"):
        assert analyze(path) == 1
        out = capfd.readouterr().out
        assert "bootkube failed in stage konnectivity-certs" in out
        assert "A03" in out


def test_a_bundle_that_is_cut_off_is_used_and_told_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder = BundleBuilder(BROKEN)
    builder.files["bootstrap/journals/kubelet.log"] = random.Random(1).randbytes(50_000)
    path = builder.archive(tmp_path)
    path.write_bytes(path.read_bytes()[:-20_000])
    assert analyze(path) == 1
    out = capfd.readouterr().out
    assert "konnectivity-certs" in out
    assert "incomplete: " in out


def test_text_of_others_cannot_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = Record().start().fails("konnectivity-certs\x1b[2J", "\x1b]0;title\x07 UMB112 \r\u202e")
    builder = BundleBuilder(script).log(JOURNAL, "\x1b[2J UMB112 \x9b31m")
    builder.files["bootstrap/services/\x1b[31m.json"] = b"["
    analyze(builder.archive(tmp_path))
    out = capfd.readouterr().out
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize("content", [b"", b"text", gzip.compress(b"text"), gzip.compress(tar_of([("a.txt", b"x")]))])
def test_what_is_no_bundle_exits_with_three(tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert analyze(path) == 3
    captured = capfd.readouterr()
    assert captured.err.startswith("UMB181 ")
    assert captured.out == ""


def test_a_directory_of_something_else_is_no_bundle(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metadata.json").write_text('{"infraID": "x"}')
    assert analyze(tmp_path) == 3
    assert analyze(tmp_path / "none") == 3
    assert "UMB180" in capfd.readouterr().err


def test_a_large_journal_is_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder = BundleBuilder(Record().start().done(*STAGES[:6]).enters("cb-bootstrap"))
    line = "Nov 15 14:00:00 bootstrap kubelet[1]: nothing of interest in this line of a long journal\n" * 10_000
    builder.files["bootstrap/journals/journal.log.gz"] = gzip.compress((line * 20 + "UMB112 here\n").encode(), 1)
    assert analyze(builder.archive(tmp_path)) == 1
    assert "journal.log.gz:200001 " in capfd.readouterr().out


@pytest.mark.parametrize("form", ["table", "json", "junit"])
def test_letters_that_the_terminal_lacks_do_no_harm(tmp_path: Path, form: str) -> None:
    path = BundleBuilder(Record().start().fails("stüfe")).archive(tmp_path, "bündel.tar.gz")
    program = "import sys; from umbilical.cli.main import run; sys.exit(run(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run(
        [sys.executable, "-c", program, "bootstrap", "analyze", str(path), "-o", form],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.isascii()
    assert b"st\\xfcfe" in done.stdout or b"st&#252;fe" in done.stdout or b"st\\u00fcfe" in done.stdout
