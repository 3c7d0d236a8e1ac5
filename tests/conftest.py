"""Rules for all tests: which tests run on this machine, when a skip is a failure, and that tests leave nothing behind.

`@pytest.mark.real("proxy-server", "openssl")` names the programs that a test needs. If one is missing (a peer in the
cache, any other program on PATH) the test is skipped. With UMBILICAL_REQUIRE_PEERS=1 a skip of a test that is marked
`real` is a failure. The last lines of the report count the skips by program.
"""

import inspect
import os
import re
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest
from tests.support import leftovers

import peers

if TYPE_CHECKING:
    from tests.support.control_plane import ControlPlane

ROOT: Final = Path(__file__).resolve().parent.parent
PEERS_REQUIRED: Final = os.environ.get("UMBILICAL_REQUIRE_PEERS") == "1"
MAX_SECOND_RUNS: Final = 1
"""Tests that may need a second run in one call of `.ci/run`."""
SECOND_RUNS: Final = os.environ.get("UMBILICAL_SECOND_RUNS")
"""The file in which all pytest calls of `.ci/run` collect the names of tests that needed a second run."""
FAILURE_LINES: Final = 12
SOAKING: Final = os.environ.get("UMBILICAL_SOAK") == "1"
NAMESPACE_CAPABILITIES: Final = (1 << 12) | (1 << 21)
"""CAP_NET_ADMIN and CAP_SYS_ADMIN: root in a container without privileges has neither."""

# No time limit for examples, because the machine may be busy. In CI every run uses the same examples.
hypothesis.settings.register_profile(
    "umbilical",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("umbilical")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let programs of tests be interrupted, and disable Nagle's algorithm for reports of second runs.

    A shell starts background jobs with SIGINT ignored, and children inherit that. The plugin for second runs writes
    twice, then reads, which takes 40 ms with Nagle's algorithm.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    link = getattr(getattr(config, "failures_db", None), "sock", None)
    if link is not None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nameless = sorted(
        {item.nodeid for item in items for marker in item.iter_markers("real") if not marker.args}
        | {item.nodeid for item in items if any(not isinstance(name, str) for name in _programs(item))}
    )
    if nameless:
        raise pytest.UsageError(f"a `real` mark must name the programs that its test needs: {', '.join(nameless)}")
    # Files with the longest tests run first, so that no worker is still busy with one when the others have finished.
    usual = float(config.getini("timeout"))
    longest: dict[Path, float] = {}
    for item in items:
        limits = [limit for marker in item.iter_markers("timeout") for limit in marker.args]
        longest[item.path] = max(usual, longest.get(item.path, usual), *limits)
    items.sort(key=lambda item: -longest[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("soak") is not None and not SOAKING:
        pytest.skip("a soak test: run `make soak`")
    if item.get_closest_marker("root") is not None and not _may_make_namespaces():
        pytest.skip("needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN to make network namespaces")
    missing = [name for name in _programs(item) if _program(name) is None]
    if missing:
        pytest.skip(f"no program {missing[0]}: {_remedy(missing[0])}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from tests.support.coroutines import play

    play(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True


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


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Remember what a fixture of a wider scope starts: it may outlive a test."""
    if fixturedef.scope == "function":
        return (yield)
    before = leftovers.alive()
    try:
        return (yield)
    finally:
        _of_wider_fixtures.update(leftovers.alive() - before)


_of_wider_fixtures: Final[set[str]] = set()


@pytest.fixture(autouse=True)
def _the_test_leaves_nothing_behind() -> Iterator[None]:
    before = leftovers.alive()
    yield
    left = leftovers.outlasting(before, _of_wider_fixtures)
    assert not left, f"the test left behind: {', '.join(left)}"


@pytest.fixture(scope="module", autouse=True)
def _the_file_ends_in_the_same_network() -> Iterator[None]:
    """A fixture that enters a network namespace must leave it again, because the next file may use another one."""
    before = leftovers.network()
    yield
    assert leftovers.network() == before, "the file's tests left this thread in another network namespace"


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):  # workers send their reports to the main process
        return
    again = _noted([report.nodeid for report in reporter.stats.get("rerun", [])])
    if len(again) > MAX_SECOND_RUNS and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(
            f"\n{len(again)} tests needed a second run; the limit is {MAX_SECOND_RUNS}: {', '.join(again)}"
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """At the end of the report, show why tests ran twice, and count the skips by missing program."""
    yield
    for report in terminalreporter.stats.get("rerun", []):
        last = report.longreprtext.strip().splitlines()[-FAILURE_LINES:]
        terminalreporter.write_line("\n".join([f"{report.nodeid} ran twice, the first time it ended with", *last]))
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missing = Counter(found[1] for reason in reasons if (found := re.search(r"no program ([^\s:]+):", reason)))
    for name, count in sorted(missing.items()):
        terminalreporter.write_line(f"{count} skipped because {name} is missing: {_remedy(name)}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ControlPlane]":
    """A real control plane, shared by all tests that do not change it."""
    from tests.support.control_plane import control_plane

    with control_plane(tmp_path_factory.mktemp("control-plane"), names=("api.ocp4.example.com",)) as plane:
        yield plane


def _programs(item: pytest.Item) -> list[str]:
    return [name for marker in item.iter_markers("real") for name in marker.args]


def _is_peer(name: str) -> bool:
    return any(name == program.name for group in peers.groups().values() for m in group for program in m.programs)


def _program(name: str) -> Path | str | None:
    """Find a peer in the cache, any other program on PATH. On PATH our own programs have the names of peers."""
    return peers.binary(name) if _is_peer(name) else shutil.which(name)


def _remedy(name: str) -> str:
    if _is_peer(name):
        group = peers.group_on_request(name)
        return f"run `make peers GROUP={group}`" if group else "run `make peers`"
    table = (line.split() for line in (ROOT / "tools" / "debian_packages.txt").read_text().splitlines())
    packages = {row[0]: row[1] for row in table if len(row) == 2}
    return f"apt-get install {packages[name]}" if name in packages else "put it on PATH"


def _may_make_namespaces() -> bool:
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return effective is not None and int(effective[1], 16) & NAMESPACE_CAPABILITIES == NAMESPACE_CAPABILITIES


def _noted(again: list[str]) -> list[str]:
    """Return the names so far: of this call, and in `.ci/run` of the calls before it."""
    if SECOND_RUNS is None:
        return again
    with Path(SECOND_RUNS).open("a+", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in again)
        file.seek(0)
        return file.read().split("\n")[:-1]


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure."""
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although UMBILICAL_REQUIRE_PEERS=1: {report.longreprtext}"
