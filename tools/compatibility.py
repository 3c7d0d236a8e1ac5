"""Tests our programs with other versions of upstream, Kubernetes and Python, and writes docs/compatibility.md.

    compatibility.py [--only REGEX] [--python PROGRAM ...] [--print]

Each row is a run of tests that exist anyway, with other programs in the place of the usual ones. Builds the programs
that are missing, and an environment for each other Python in build/.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import peers
import results_page

ROOT: Final = Path(__file__).resolve().parent.parent
TOOL: Final = "compatibility"
PAGE: Final = ROOT / "docs" / f"{TOOL}.md"
PYTHONS: Final = ("python3.11", "python3.12", "python3.13", "python3.14")
MATRIX: Final = "tests/interop/test_matrix.py"
WEBHOOK: Final = "tests/interop/test_webhook.py"
PACKAGES: Final = tuple(
    f"tests/{name}" for name in ("wire", "konnectivity", "tunnel", "dialer", "proxies", "pki", "bootstrap", "hosted")
)
"""What users run outside this tree: tunnel, proxies, and the commands for installers."""
MIXED: Final = {"our server, its agent": "ours-upstream", "its server, our agent": "upstream-ours"}
"""Column -> the part of a test's name that selects it."""
CONTROL: Final = "upstream-upstream"
"""Its server with its agent: what fails there, too, is how this server works."""
TESTS_SECONDS: Final = 1800
INSTALL_SECONDS: Final = 1300
MESSAGE_LENGTH: Final = 160


@dataclass(frozen=True)
class Outcome:
    """One test: its name, and the first line of its failure."""

    name: str
    failure: str = ""
    is_skipped: bool = False


@dataclass(frozen=True)
class Case:
    """One row: a version in place of the usual one, and the tests that run with it."""

    table: str
    version: str
    tests: tuple[str, ...]
    select: str = ""
    """Expression for pytest's -k."""
    versions: str = ""
    """What UMBILICAL_PEER_VERSIONS says: `NAME=VERSION ...`."""
    python: str = sys.executable

    def __str__(self) -> str:
        return f"{self.table} {self.version}"


LIKE_ALONE: Final = "fail with its own agent, too"
UPSTREAM: Final = "apiserver-network-proxy"
KUBERNETES: Final = "kube-apiserver"
PYTHON: Final = "Python"


def cases(pythons: Iterable[str]) -> Iterator[Case]:
    """Return all rows; a Python that is not on this machine has none."""
    for version in (peers.UPSTREAM_VERSION, *peers.OLDER_UPSTREAM):
        chosen = "" if version == peers.UPSTREAM_VERSION else f"proxy-server={version} proxy-agent={version}"
        yield Case(UPSTREAM, version, (MATRIX,), " or ".join((*MIXED.values(), CONTROL)), chosen)
    for version in sorted((peers.KUBERNETES_VERSION, *peers.OTHER_KUBERNETES), reverse=True):
        chosen = "" if version == peers.KUBERNETES_VERSION else f"kube-apiserver={version}"
        yield Case(KUBERNETES, version, (WEBHOOK,), versions=chosen)
    for python in filter(None, map(shutil.which, pythons)):
        if version := _python_version(python):
            yield Case(PYTHON, version, (*PACKAGES, MATRIX), "not oldest", python=python)


def _python_version(python: str) -> str:
    """Return its version; empty if it does not start, as a name that pyenv has for every version."""
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


def run(case: Case) -> list[Outcome]:
    """Run the tests of a row and return those of our programs. Raises PeerError: they could not start."""
    python = _environment(case.python)
    with tempfile.TemporaryDirectory(prefix="umbilical-compatibility-") as folder:
        report = Path(folder) / "junit.xml"
        command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not soak and not alone"]
        command += [f"--junitxml={report}", *(("-k", case.select) if case.select else ()), *case.tests]
        environment = {**os.environ, peers.CHOSEN: case.versions, "UMBILICAL_REQUIRE_PEERS": "1"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TESTS_SECONDS, check=False
        )
        if not report.exists():
            why = (done.stderr or done.stdout).strip().rpartition("\n")[2]
            raise peers.PeerError("UMB908", f"tests with {case} did not start", why, f"run them: {' '.join(command)}")
        return judge(read(report.read_text()))


def _environment(python: str) -> str:
    """Return the interpreter of an environment with all packages: this one, or one in build/ that is made now."""
    if python == sys.executable:
        return python
    place = ROOT / "build" / f"compatibility-{_python_version(python)}"
    if not (place / ".ready-dev").exists():
        command = [python, str(ROOT / "tools" / "environment.py"), str(place)]
        subprocess.run(command, cwd=ROOT, timeout=INSTALL_SECONDS, check=True)
    return str(place / "bin" / "python")


def read(report: str) -> list[Outcome]:
    """Return the tests of a JUnit report."""
    return [_outcome(one) for one in ElementTree.fromstring(report).iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
    for broken in (*case.iter("failure"), *case.iter("error")):
        first = (broken.get("message") or "failed").strip().partition("\n")[0]
        return Outcome(name, first[:MESSAGE_LENGTH] or "failed")
    return Outcome(name, is_skipped=case.find("skipped") is not None)


def as_alone(outcomes: Sequence[Outcome]) -> set[str]:
    """Return the names of tests that fail with upstream's own agent, too, in the same mode."""
    alone = {_claim(one) for one in outcomes if one.failure and CONTROL in one.name}
    return {one.name for one in outcomes if one.failure and _claim(one) in alone}


def _claim(outcome: Outcome) -> tuple[str, bool]:
    """The test's function and its mode: of upstream alone not every frontend is tested."""
    return outcome.name.partition("[")[0], "-grpc-" in outcome.name


def judge(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the tests of our programs, once each; what fails with upstream's own agent, too, is `LIKE_ALONE`."""
    alone = as_alone(outcomes)
    found: dict[str, Outcome] = {}
    for one in outcomes:
        if CONTROL not in one.name and not one.is_skipped and not (one.name in found and found[one.name].failure):
            found[one.name] = Outcome(one.name, LIKE_ALONE if one.name in alone else one.failure)
    return list(found.values())


def page(results: Mapping[Case, list[Outcome]], facts: Mapping[str, str]) -> str:
    """Return all tables as Markdown."""
    lines = ["| what | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]
    for title in dict.fromkeys(case.table for case in results):
        columns = MIXED if title == UPSTREAM else {"tests": ""}
        lines += ["", f"| {title} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for case, outcomes in results.items():
            if case.table == title:
                cells = [
                    tally([one for one in outcomes if not part or f"[{part}" in one.name]) for part in columns.values()
                ]
                mark = " (default)" if title == KUBERNETES and not case.versions else ""
                lines.append(f"| {case.version}{mark} | {' | '.join(cells)} |")
    broken = [(case, one) for case, outcomes in results.items() for one in failed(outcomes)]
    if broken:
        lines += ["", "| failed test | with | message |", "|---|---|---|"]
        lines += [f"| `{one.name}` | {case} | {one.failure.replace('|', chr(92) + '|')} |" for case, one in broken]
    return "\n".join(lines)


def failed(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [one for one in outcomes if one.failure not in ("", LIKE_ALONE)]


def tally(outcomes: Sequence[Outcome]) -> str:
    """Count them in words."""
    broken, alike = len(failed(outcomes)), sum(1 for one in outcomes if one.failure == LIKE_ALONE)
    parts = [f"{len(outcomes) - broken - alike} passed"]
    parts += [f"{alike} {LIKE_ALONE}"] if alike else []
    return ", ".join([*parts, f"**{broken} failed**"] if broken else parts)


def facts() -> dict[str, str]:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h of %cs"]
    commit = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "Umbilical": f"commit {commit}, not compiled",
        "Python, except in its own table": _python_version(sys.executable),
        "machine": f"{os.cpu_count()} cores, kernel {os.uname().release.partition('-')[0]}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Test our programs with other versions of their peers.")
    parser.add_argument("--only", default="", help="only rows that match this pattern, as `kube-apiserver v1.33`")
    parser.add_argument("--python", action="append", default=[], help="another Python to test; repeatable")
    parser.add_argument("--print", action="store_true", help=f"print the tables instead of writing docs/{TOOL}.md")
    options = parser.parse_args(arguments)
    rows = [case for case in cases([*PYTHONS, *options.python]) if re.search(options.only, str(case))]
    if not rows:
        parser.error(f"argument --only: no row matches '{options.only}'; a row is named as 'kube-apiserver v1.33'")
    described = facts()
    for group in ("konnectivity", "kubernetes", TOOL):
        peers.build(group, lambda line: print(line, flush=True))
    results: dict[Case, list[Outcome]] = {}
    for case in rows:
        results[case] = run(case)
        print(f"{case}: {tally(results[case])}", flush=True)
    tables = page(results, described)
    if options.print:
        print(tables)
    else:
        PAGE.write_text(results_page.replace(PAGE.read_text(), TOOL, tables))
    return 0 if not any(map(failed, results.values())) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except peers.PeerError as error:
        print(error, file=sys.stderr)
        sys.exit(4)
