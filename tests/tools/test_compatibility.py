"""The table of versions: which rows there are, what is read from a run of tests, and that failures are shown."""

import shutil
import sys

import pytest

import compatibility
import peers
from compatibility import KUBERNETES, PYTHON, UPSTREAM, Case, Outcome

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.interop.test_matrix" name="test_a[ours-upstream-grpc-uds]"/>
<testcase classname="tests.interop.test_matrix" name="test_a[upstream-ours-grpc-uds]">
<failure message="assert 1 == 2 | x&#10;more">long</failure></testcase>
<testcase classname="tests.interop.test_matrix" name="test_b[ours-upstream-grpc-uds]"><skipped/></testcase>
<testcase classname="tests.interop.test_matrix" name="test_c[ours-upstream-grpc-uds]">
<error message="failed on setup"/></testcase>
</testsuite></testsuites>"""


def test_every_supported_version_has_a_row_and_the_usual_one_is_not_replaced() -> None:
    rows = list(compatibility.cases([]))
    versions = {title: [row.version for row in rows if row.table == title] for title in (UPSTREAM, KUBERNETES)}
    assert versions[UPSTREAM] == ["v0.36.0", "v0.34.0", "v0.31.4", "v0.30.3"]
    assert versions[KUBERNETES] == ["v1.37.1", "v1.36.3", "v1.35.4", "v1.34.4", "v1.33.13"]
    usual = {peers.UPSTREAM_VERSION, peers.KUBERNETES_VERSION}
    assert [row.version for row in rows if not row.versions] == sorted(usual)


def test_every_version_of_a_row_is_built_by_a_group() -> None:
    built = {program.name for group in peers.groups().values() for module in group for program in module.programs}
    for row in compatibility.cases([]):
        assert {one.replace("=", "-") for one in row.versions.split()} <= built


def test_a_python_that_is_missing_or_does_not_start_has_no_row() -> None:
    false = shutil.which("false")
    assert false
    rows = [row for row in compatibility.cases([sys.executable, "python9.99", false]) if row.table == PYTHON]
    assert [row.version for row in rows] == [".".join(map(str, sys.version_info[:3]))]


def test_a_pattern_that_no_row_has_is_refused_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    before = compatibility.PAGE.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        compatibility.main(["--only", "kube-apiserver v0"])
    assert "no row matches 'kube-apiserver v0'; a row is named as 'kube-apiserver v1.33'" in capsys.readouterr().err
    assert compatibility.PAGE.read_bytes() == before


def test_a_report_gives_each_test_with_the_first_line_of_its_failure() -> None:
    assert compatibility.read(REPORT) == [
        Outcome("test_matrix::test_a[ours-upstream-grpc-uds]"),
        Outcome("test_matrix::test_a[upstream-ours-grpc-uds]", "assert 1 == 2 | x"),
        Outcome("test_matrix::test_b[ours-upstream-grpc-uds]", is_skipped=True),
        Outcome("test_matrix::test_c[ours-upstream-grpc-uds]", "failed on setup"),
    ]


def test_the_page_counts_both_directions_and_lists_failures() -> None:
    case = Case(UPSTREAM, "v1.2.3", ())
    page = compatibility.page({case: compatibility.judge(compatibility.read(REPORT))}, {"date": "2026-01-02"})
    assert "| v1.2.3 | 1 passed, **1 failed** | 0 passed, **1 failed** |" in page
    rows = {one: [Outcome("test_x")] for one in compatibility.cases([]) if one.table == KUBERNETES}
    page_of_apis = compatibility.page(rows, {})
    assert "| v1.37.1 (default) | 1 passed |\n| v1.36.3 | 1 passed |" in page_of_apis
    assert (
        r"| `test_matrix::test_a[upstream-ours-grpc-uds]` | apiserver-network-proxy v1.2.3 | assert 1 == 2 \| x |"
        in page
    )


def test_what_fails_with_upstreams_own_agent_in_the_same_mode_is_no_failure_of_ours() -> None:
    failing = [
        Outcome("m::test_a[upstream-upstream-http-connect-tcp-mtls]", "it"),
        Outcome("m::test_a[upstream-ours-http-connect-uds]", "ours"),
        Outcome("m::test_a[upstream-ours-http-connect-uds]", "failed on teardown"),
        Outcome("m::test_a[upstream-ours-grpc-uds]", "ours"),
        Outcome("m::test_b[upstream-upstream-http-connect-tcp-mtls]"),
        Outcome("m::test_b[upstream-ours-http-connect-uds]", "ours"),
    ]
    judged = compatibility.judge(failing)
    assert [one.name for one in compatibility.failed(judged)] == [failing[3].name, failing[5].name]
    assert compatibility.tally(judged) == "0 passed, 1 fail with its own agent, too, **2 failed**"


def test_a_run_whose_tests_cannot_start_is_reported() -> None:
    with pytest.raises(peers.PeerError, match=r"UMB908 tests with Python 3 did not start\n  why: .+\n  next: .+"):
        compatibility.run(Case(PYTHON, "3", ("--no-such-option",)))


def test_a_chosen_version_is_looked_up_instead_of_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(peers.CHOSEN, "proxy-agent=v0.0.1")
    assert peers.binary("proxy-agent") is None
