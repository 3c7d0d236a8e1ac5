"""The conformance run: the suite's images under its names, its command, and what is read from its reports."""

import re
from pathlib import Path

import pytest

import peers
from conformance import DIALING, LEFT_OUT, _options, require_root
from conformance_images import IMAGES, Base, SuiteImage, entries, references
from conformance_report import (
    LeftOut,
    RunResult,
    SpecOutcome,
    SpecResult,
    read_left_out,
    read_outcomes,
    table,
)
from conformance_run import DIALS, SuiteRun, suite_command

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>
<testcase name="[It] [sig-apps] a works [Conformance]" status="passed" time="2.5"></testcase>
<testcase name="[It] [sig-apps] b | c works [Conformance]" status="failed" time="3">
<failure type="failed">[FAILED] it did
not</failure></testcase>
<testcase name="[It] [sig-apps] d works [Conformance]" status="skipped" time="0">
<skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-apps] e works [Conformance]" status="skipped" time="1">
<skipped message="skipped - needs two zones"></skipped></testcase>
<testcase name="[It] [sig-apps] g works [Conformance]" status="interrupted" time="9">
<error type="interrupted">A suite timeout occurred</error></testcase>
<testcase name="[It] [sig-apps] h works [Conformance]" status="timedout" time="9">
<failure type="timedout">[TIMEDOUT] A suite timeout occurred In [BeforeEach]</failure></testcase>
<testcase name="[It] [sig-apps] i works [Conformance]" status="timedout" time="9">
<failure type="timedout">[TIMEDOUT] A node timeout occurred</failure></testcase>
<testcase name="[It] [sig-apps] f works" status="passed" time="1"></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def outcomes(tmp_path: Path) -> tuple[SpecOutcome, ...]:
    (tmp_path / "junit_01.xml").write_text(REPORT)
    return read_outcomes(tmp_path / "junit_01.xml")


def test_conformance_specs_are_read_with_their_result_and_nothing_else(outcomes: tuple[SpecOutcome, ...]) -> None:
    assert [(one.result, one.message) for one in outcomes] == [
        (SpecResult.PASSED, ""),
        (SpecResult.FAILED, "[FAILED] it did not"),
        (SpecResult.NOT_RUN, ""),
        (SpecResult.SKIPPED, "needs two zones"),
        (SpecResult.NOT_RUN, "A suite timeout occurred"),
        (SpecResult.NOT_RUN, "[TIMEDOUT] A suite timeout occurred In [BeforeEach]"),
        (SpecResult.FAILED, "[TIMEDOUT] A node timeout occurred"),
    ]
    assert outcomes[0].name == "[sig-apps] a works [Conformance]"


def test_the_table_counts_and_names_what_failed_and_what_was_left_out(outcomes: tuple[SpecOutcome, ...]) -> None:
    shown = table({"date": "2026-01-01"}, [RunResult("serial", outcomes, 2.4, "A note.")], [LeftOut("g|h", "no image")])
    assert "| date | 2026-01-01 |" in shown
    assert "| serial | 1 | 2 | 1 | 3 | 2 |" in shown
    assert "A note." in shown
    assert "| [sig-apps] b \\| c works [Conformance] | serial | [FAILED] it did not |" in shown
    assert "| g\\|h | no image |" in shown


def test_a_run_counts_what_it_was_to_do_only() -> None:
    names = [
        "[sig-a] b [Conformance]",
        "[sig-a] c [Serial] [Conformance]",
        "[sig-d] b [Conformance]",
        "[ReportAfterSuite]",
    ]
    parallel, serial = SuiteRun("x", "sig-a", ("z",), False, 4, 1), SuiteRun("x", "", ("z",), True, 1, 1)
    assert [parallel.selects(name) for name in names] == [True, False, False, True]
    assert [serial.selects(name) for name in names] == [False, True, False, True]
    assert not parallel.selects("[sig-a] z [Conformance]")


def test_a_run_whose_start_failed_or_that_ran_nothing_is_not_good(tmp_path: Path) -> None:
    broken = REPORT.replace(
        'status="passed" time="1"></testcase>', '><failure type="failed">no nodes</failure></testcase>', 1
    )
    (tmp_path / "junit_01.xml").write_text(broken)
    found = read_outcomes(tmp_path / "junit_01.xml")[:2]
    assert (found[0].name, found[0].message) == ("[SynchronizedBeforeSuite]", "no nodes")
    assert not RunResult("x", found, 1).is_good
    assert not RunResult("x", (), 1).is_good
    assert RunResult("x", found[1:], 1).is_good


def test_every_spec_that_is_left_out_has_a_pattern_and_a_reason() -> None:
    assert read_left_out("# c\n\na.*b | no image\n") == [LeftOut("a.*b", "no image")]
    for one in read_left_out(LEFT_OUT.read_text()):
        assert re.compile(one.pattern)
        assert one.reason


def test_images_have_the_names_of_the_suite_except_those_that_no_cluster_may_pull() -> None:
    listed = [
        "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
        "gcr.io/k8s-authenticated-test/agnhost:2.6",
        "registry.k8s.io/e2e-test-images/agnhost:2.55",
        "registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2",
    ]
    assert references(listed, "agnhost") == [listed[0], listed[2]]
    assert references(listed, "sample-apiserver") == [listed[3]]
    assert references(listed, "apiserver") == []
    assert {"agnhost", "busybox", "sample-apiserver", "etcd", "pause"} <= set(IMAGES)


def test_an_image_has_its_files_below_folders_and_users(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    busybox = tmp_path / "bin" / "busybox"
    busybox.write_text("#!/bin/sh\necho cat\necho sh\n")
    busybox.chmod(0o755)
    made = entries(SuiteImage(Base.BUSYBOX, {"srv/pages/index.html": b"<p>"}), tmp_path)
    paths = [entry.path for entry in made]
    assert {"bin/cat", "bin/sh", "etc/passwd", "etc/group"} <= set(paths)
    assert paths.index("srv") < paths.index("srv/pages") < paths.index("srv/pages/index.html")
    assert {entry.path: entry.link for entry in made if entry.link} == {
        "bin/cat": "busybox",
        "bin/sh": "bash-static",
        "bin/bash": "bash-static",
    }
    bare = entries(SuiteImage(files={"x": b"program"}), tmp_path)
    assert [entry.path for entry in bare if entry.path.startswith(("bin", "etc"))] == []


def test_the_program_that_tells_its_user_is_set_user_id_and_nothing_else_is() -> None:
    modes = {name: image.mode & 0o7000 for name, image in IMAGES.items() if image.mode & 0o7000}
    assert modes == {"nonewprivs": 0o4000}
    image = SuiteImage(files={"nnp": b"program"}, mode=0o4755)
    assert [entry.mode for entry in entries(image, Path("unused")) if entry.path == "nnp"] == [0o4755]


def test_the_suite_runs_what_was_chosen_and_writes_a_report() -> None:
    command = suite_command(SuiteRun("serial", "sig-node", ("a", "b"), True, 1, 2.5), "/srv/x")
    ginkgo, suite = command[: command.index("--")], command[command.index("--") + 1 :]
    assert {"--label-filter=Conformance && Serial", "--focus=sig-node", "--skip=a", "--skip=b"} <= set(ginkgo)
    assert {"--procs=1", "--timeout=150s"} <= set(ginkgo)
    assert "--report-dir=/srv/x" in suite


def test_a_focus_replaces_the_usual_choice_and_serial_specs_run_alone() -> None:
    chosen = _options(["--run", "serial", "--processes", "3"])
    assert chosen.runs == ("serial",)
    assert (chosen.suite_run("serial", is_serial=True).processes, chosen.suite_run("parallel").processes) == (1, 3)
    assert _options([]).runs == ("tunnel", "parallel", "serial")
    assert _options([]).suite_run("tunnel", "|".join(DIALING)).focus == "|".join(DIALING)
    assert _options(["--focus", "sig-cli"]).suite_run("tunnel", "x").focus == "sig-cli"


def test_only_root_can_make_the_cluster() -> None:
    with pytest.raises(peers.PeerError, match="UMB903 make conformance needs root"):
        require_root(1000)
    require_root(0)


def test_dials_through_the_egress_selector_are_counted_by_kind() -> None:
    text = (
        'apiserver_egress_dialer_dial_duration_seconds_count{protocol="grpc",transport="uds"} 17\n'
        'apiserver_egress_dialer_dial_duration_seconds_sum{protocol="grpc",transport="uds"} 0.5\n'
        'apiserver_egress_dialer_dial_failure_count{protocol="grpc",stage="connect",transport="uds"} 2\n'
    )
    assert DIALS.findall(text) == [("duration_seconds_count", "17"), ("failure_count", "2")]
