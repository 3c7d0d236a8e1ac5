"""Runs Kubernetes' own conformance specs on a cluster of the hard way, and writes docs/conformance.md.

Three runs: before the pivot, where kube-apiserver reaches pods only through the tunnel, the specs that make it dial
pods; then, on the whole cluster, all specs that may run at the same time, and the serial ones. As root, in the lab;
everything is removed at the end. It is not a certification.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import conformance_report
import debian
import peers
import results_page
from conformance_report import LeftOut, RunResult, SpecResult
from conformance_run import ConformanceCluster, SuiteRun
from umbilical.fault import Fault

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "out" / "conformance"
"""JUnit report and log of each run."""
PAGE: Final = ROOT / "docs" / "conformance.md"
LEFT_OUT: Final = Path(__file__).with_name("conformance_left_out.txt")
UMBILICAL: Final = Path(sys.executable).with_name("umbilical")
BEFORE_PIVOT: Final = "11"
"""The last stage at which only the bootstrap machine has a kube-apiserver."""
BOOTSTRAP: Final = "bootstrap"
# Specs in which kube-apiserver dials a pod or a kubelet, and the suite itself needs the API alone.
DIALING: Final = (
    "AdmissionWebhook",
    "CustomResourceConversionWebhook",
    r"Aggregator Should",
    "Proxy version v1",
    "over websockets",
    "Kubectl logs",
    "Update Demo",
    "Guestbook",
)
RUNS: Final = ("tunnel", "parallel", "serial")


@dataclass(frozen=True)
class ConformanceOptions:
    runs: tuple[str, ...]
    focus: str
    minutes: float
    processes: int
    prints_only: bool

    def suite_run(self, name: str, focus: str = "", *, is_serial: bool = False) -> SuiteRun:
        """Return one run of the suite; `focus` is used if the user gave none."""
        skip = tuple(one.pattern for one in left_out())
        return SuiteRun(name, self.focus or focus, skip, is_serial, 1 if is_serial else self.processes, self.minutes)


def report(line: str) -> None:
    print(line, flush=True)


@contextmanager
def cluster_directory() -> Iterator[Path]:
    """A directory with cluster.yaml; its cluster and the directory are removed at the end."""
    scratch = Path(tempfile.mkdtemp(prefix="umbilical-conformance-"))
    directory = scratch / "cluster"
    size = ("--profile", "kubernetes", "--machines", "lab", "--masters", "1", "--workers", "2")
    _stage("init", "--dir", str(directory), "--name", "conformance", *size)
    try:
        yield directory
    finally:
        # If this fails the directory stays: its machines may still use it.
        _stage("destroy", "--dir", str(directory), "--yes")
        shutil.rmtree(scratch)


def _stage(*arguments: str) -> None:
    done = subprocess.run([UMBILICAL, "stage", *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        shown = f"umbilical stage {' '.join(arguments)}"
        raise peers.PeerError("UMB905", "the cluster was not built", f"{shown} exited with {done.returncode}", shown)


def through_tunnel(cluster: ConformanceCluster, directory: Path, chosen: ConformanceOptions) -> RunResult:
    """Run the specs in which kube-apiserver dials, with a kube-apiserver that has no route to pods."""
    _stage("run", BEFORE_PIVOT, "--dir", str(directory))
    cluster.lay_programs()
    cluster.load_images(cluster.node_ids())
    cluster.require_no_route_to_pods(BOOTSTRAP, cluster.node_ids()[0])
    cluster.set_masters_schedulable(True)
    before = cluster.tunnel_use()
    result = run_suite(cluster, chosen.suite_run("tunnel", "|".join(DIALING)), "through the tunnel")
    after = cluster.tunnel_use()
    cluster.set_masters_schedulable(False)
    dials, failures = after.dials - before.dials, after.failures - before.failures
    if dials == 0:
        why = "its egress selector counted no dial, so the specs did not use the tunnel"
        raise peers.PeerError("UMB906", "the run showed nothing about the tunnel", why, f"less {KEPT}/tunnel.log")
    note = (
        f"Through the tunnel: kube-apiserver, without a route to pods, dialed {dials} times through its egress "
        f"selector; {failures} dials failed."
    )
    return RunResult(result.title, result.outcomes, result.minutes, note)


def on_whole_cluster(cluster: ConformanceCluster, directory: Path, chosen: ConformanceOptions) -> Iterator[RunResult]:
    _stage("run", "--dir", str(directory))
    cluster.lay_programs()
    cluster.load_images(cluster.node_ids())
    if "parallel" in chosen.runs:
        yield run_suite(cluster, chosen.suite_run("parallel"), "non-serial")
    if "serial" in chosen.runs:
        yield run_suite(cluster, chosen.suite_run("serial", is_serial=True), "serial")


def run_suite(cluster: ConformanceCluster, wanted: SuiteRun, title: str) -> RunResult:
    started = time.monotonic()
    written = cluster.run(wanted, KEPT)
    outcomes = tuple(one for one in conformance_report.read_outcomes(written) if wanted.selects(one.name))
    result = RunResult(title, outcomes, (time.monotonic() - started) / 60)
    counts = ", ".join(f"{result.count(kind)} {kind.value}" for kind in SpecResult)
    report(f"conformance: {title}: {counts}, {result.minutes:.0f} min")
    for outcome in result.failed:
        report(f"  failed: {outcome.name}\n          {outcome.message[: conformance_report.MESSAGE_LENGTH]}")
    return result


def left_out() -> list[LeftOut]:
    return conformance_report.read_left_out(LEFT_OUT.read_text())


def versions() -> dict[str, str]:
    containerd, revision = (
        _said("containerd", "--version").split()[2],
        _said("git", "-C", str(ROOT), "describe", "--always"),
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "Umbilical": revision,
        "Kubernetes and its suite": peers.KUBERNETES_VERSION,
        "containerd": containerd,
        "cluster": "one master, two workers, in the lab",
        "machine": f"{os.cpu_count()} cores, kernel {os.uname().release.partition('-')[0]}",
    }


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(chosen: ConformanceOptions) -> list[RunResult]:
    results = []
    with cluster_directory() as directory:
        cluster = ConformanceCluster(directory, report)
        if "tunnel" in chosen.runs:
            results.append(through_tunnel(cluster, directory, chosen))
        if {"parallel", "serial"} & set(chosen.runs):
            results += on_whole_cluster(cluster, directory, chosen)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _options(arguments)
    require_root(os.geteuid())
    for group in ("kubernetes", "conformance"):
        peers.build(group, report)
    # Else a SIGTERM would leave the cluster behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # Before the run, which takes hours: the tree may change.
    described = versions()
    results = run(chosen)
    table = conformance_report.table(described, results, left_out())
    page = results_page.replace(PAGE.read_text(), "conformance", table)
    if chosen.prints_only:
        report(page)
    else:
        PAGE.write_text(page)
    return 0 if all(result.is_good for result in results) else 1


def require_root(user: int) -> None:
    if user != 0:
        why = "the cluster's machines are network namespaces with a real kubelet"
        raise peers.PeerError("UMB903", "make conformance needs root", why, "sudo make conformance")


def _options(arguments: Sequence[str] | None) -> ConformanceOptions:
    parser = argparse.ArgumentParser(description="Run Kubernetes' own conformance specs on a cluster in the lab.")
    parser.add_argument("--run", choices=RUNS, action="append", help="only this run; repeatable (all three)")
    parser.add_argument("--focus", default="", help="only conformance specs whose name matches this pattern")
    parser.add_argument("--minutes", type=float, default=120, help="time limit of each run in minutes (120)")
    parser.add_argument("--processes", type=int, default=4, help="specs at the same time, except serial ones (4)")
    parser.add_argument("--print", action="store_true", help="print the page instead of writing docs/conformance.md")
    chosen = parser.parse_args(arguments)
    return ConformanceOptions(tuple(chosen.run or RUNS), chosen.focus, chosen.minutes, chosen.processes, chosen.print)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (peers.PeerError, debian.DebianError, Fault) as error:
        print(error, file=sys.stderr)
        sys.exit(4)
