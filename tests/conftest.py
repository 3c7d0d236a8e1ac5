"""Rules for the whole suite: which tests run here, and when a skip is a lie.

A test against a real program says so by `@pytest.mark.real("proxy-server", "proxy-agent")`. Where a program is
missing (a peer from the cache, anything else from PATH) the test is skipped, unless UMBILICAL_REQUIRE_PEERS=1:
then nothing that is marked `real` may skip, for whatever reason.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

import peers

if TYPE_CHECKING:
    from tests.support.control_plane import ControlPlane

ROOT: Final = Path(__file__).resolve().parent.parent
PEERS_REQUIRED: Final = os.environ.get("UMBILICAL_REQUIRE_PEERS") == "1"
MAX_SECOND_RUNS: Final = 3
"""Tests that may need a second run where those are allowed (`.ci/run`): more than that is no accident."""
SOAKING: Final = os.environ.get("UMBILICAL_SOAK") == "1"

# No time limits: how long an example takes on a busy machine says nothing. In CI every run draws the same examples.
hypothesis.settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("house")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("soak") is not None and not SOAKING:
        pytest.skip("a soak test: run `make soak`")
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    for name in _missing_programs(item):
        pytest.skip(f"no program {name}: run `make peers`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if PEERS_REQUIRED and item.get_closest_marker("real") is not None:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if PEERS_REQUIRED:
        _refuse_skip(report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    again = reporter.stats.get("rerun", [])
    if len(again) > MAX_SECOND_RUNS and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\n{len(again)} tests needed a second run, and {MAX_SECOND_RUNS} may: this is no accident")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ControlPlane]":
    """One real control plane for all tests that leave it as they found it."""
    from tests.support.control_plane import control_plane

    with control_plane(tmp_path_factory.mktemp("control-plane"), names=("api.ocp4.example.com",)) as plane:
        yield plane


def _missing_programs(item: pytest.Item) -> list[str]:
    names = [name for marker in item.iter_markers("real") for name in marker.args]
    return [name for name in names if _program(name) is None]


def _program(name: str) -> Path | str | None:
    """Find a peer in the cache, anything else (curl, openssl) on PATH, where our own programs bear peers' names."""
    is_peer = any(name == program.name for group in peers.groups().values() for m in group for program in m.programs)
    return peers.binary(name) if is_peer else shutil.which(name)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure: under UMBILICAL_REQUIRE_PEERS=1 a test that did not run has shown nothing."""
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although UMBILICAL_REQUIRE_PEERS=1: {report.longreprtext}"
