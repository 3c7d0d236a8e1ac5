"""Where judges sit: a copy for us alone, which goes; and programs that fail or hang are faults, not crashes."""

import subprocess
from pathlib import Path

import pytest
from tests.support.hardway_judges import current

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.checks.check import Outcome
from umbilical.hardway.judges.bench import Bench, judge_by, on_path, open_bench


def test_the_copy_is_for_us_alone_and_goes() -> None:
    subject = current(Profile.KUBERNETES)
    with open_bench(subject.facts()) as bench:
        key = bench.file("tls/root-ca.key" if "tls/root-ca.key" in subject.assets else "tls/etcd-signer.key")
        assert key.stat().st_mode & 0o077 == 0
        assert bench.folder.stat().st_mode & 0o077 == 0
        assert len([path for path in bench.folder.rglob("*") if path.is_file()]) == len(subject.assets)
    assert not bench.folder.exists()


def test_a_program_is_run_and_all_that_it_says_is_kept() -> None:
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        said = bench.run("bash", "-c", "cat; echo no >&2; exit 3", stdin=b"yes\n")
        assert (said.status, said.lines) == (3, ["no", "yes"])


def _hangs(bench: Bench) -> list[str]:
    raise subprocess.TimeoutExpired(["/usr/bin/etcd"], 3)


def _misses(bench: Bench) -> list[str]:
    raise Unreadable("x is missing")


@pytest.mark.parametrize(("search", "told"), [(_hangs, "etcd did not end within 3 s"), (_misses, "x is missing")])
def test_what_goes_wrong_is_a_fault(search: object, told: str) -> None:
    assert callable(search)
    check = judge_by("EXT-99", "title", "why", "fix", search, "bash")
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        verdict = check.judge(bench)
    assert (verdict.outcome, verdict.evidence) == (Outcome.FAILED, told)


def test_advice_warns() -> None:
    check = judge_by("EXT-99", "title", "why", "fix", lambda bench: ["one", "two"], is_advice=True)
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        verdict = check.judge(bench)
    assert (verdict.outcome, verdict.evidence) == (Outcome.WARNED, "one; two")


def test_programs_are_found_on_path() -> None:
    found = on_path("bash")
    assert isinstance(found, Path)
    assert on_path("no-such-program-anywhere") is None
