"""Runs Kubernetes' own test suite on the host node of a cluster in the lab, and loads its images on all nodes."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import peers
from conformance_images import IMAGES, listed_images, write_images
from conformance_report import STEPS
from umbilical.lab.hardway.names import HOST
from umbilical.lab.kubelet import containerd
from umbilical.lab.lab import Lab
from umbilical.lab.node_root import locate

FOLDER: Final = "/srv/conformance"
"""On the host node: programs, kubeconfig and reports."""
PROGRAMS: Final = ("e2e.test", "ginkgo")
ADMIN: Final = f"{FOLDER}/admin.kubeconfig"
CONTROL_PLANE_TAINT: Final = "node-role.kubernetes.io/control-plane"
# At the limit ginkgo ends the running specs itself and writes its report.
GRACE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 2.0
PROGRESS_SECONDS: Final = 60.0
KUBECTL_SECONDS: Final = 120.0
SERIAL: Final = "[Serial]"
ENDED: Final = "•"
"""ginkgo prints one for each spec that ended."""
CONNECT: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
DIALS: Final = re.compile(
    r"^apiserver_egress_dialer_dial_(duration_seconds_count|failure_count)\{.*\} (\S+)$", re.MULTILINE
)


@dataclass(frozen=True)
class SuiteRun:
    """One run of the suite."""

    name: str
    focus: str
    skip: tuple[str, ...]
    is_serial: bool
    processes: int
    minutes: float

    @property
    def labels(self) -> str:
        return f"Conformance && {'Serial' if self.is_serial else '!Serial'}"

    def selects(self, name: str) -> bool:
        """Whether a spec belongs to this run, as ginkgo decides it; the suite's own steps belong to every run."""
        if name.startswith(STEPS):
            return True
        is_chosen = (SERIAL in name) == self.is_serial and re.search(self.focus, name) is not None
        return is_chosen and not any(re.search(pattern, name) for pattern in self.skip)


@dataclass(frozen=True)
class TunnelUse:
    """What kube-apiserver's egress selector dialed."""

    dials: int
    failures: int


def read_tunnel_use(metrics: str) -> TunnelUse:
    """Return what kube-apiserver's metrics say."""
    found = DIALS.findall(metrics)
    total = {kind: sum(int(float(value)) for one, value in found if one == kind) for kind, _ in found}
    return TunnelUse(total.get("duration_seconds_count", 0), total.get("failure_count", 0))


class ConformanceCluster:
    """A cluster of the hard way that runs in the lab."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        self._directory = directory
        self._report = report

    @property
    def _lab(self) -> Lab:
        # The lab of the stages, opened by its directory like they do it.
        return Lab.open(self._directory / ".umbilical" / "lab")

    def lay_programs(self) -> None:
        place = locate(self._lab.directory.node_root(HOST), FOLDER)
        place.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            shutil.copy2(_program(name), place / name)
        shutil.copy2(self._directory / "artifacts" / "auth" / "admin.kubeconfig", place / Path(ADMIN).name)

    def load_images(self, nodes: Sequence[str], names: Iterable[str] = tuple(IMAGES)) -> None:
        """Import images of the suite on these nodes."""
        with tempfile.TemporaryDirectory(prefix="umbilical-images-") as scratch:
            listed = listed_images(_program("e2e.test"))
            written = write_images(Path(scratch), listed, self._report, names)
            for node in nodes:
                self._import(node, written)
                self._report(f"conformance: {len(written)} images on {node}")

    def _import(self, node: str, written: Sequence[Path]) -> None:
        snapshotter = containerd.choose_snapshotter(self._lab, node)
        for archive in written:
            path = f"{FOLDER}/{archive.name}"
            place = locate(self._lab.directory.node_root(node), path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(archive, place)
            containerd.import_image(self._lab, node, path, snapshotter)
            place.unlink()

    def kubectl(self, *arguments: str) -> str:
        command = ["kubectl", f"--kubeconfig={ADMIN}", *arguments]
        return self._lab.exec(HOST, command, timeout_seconds=KUBECTL_SECONDS).check().text

    def node_ids(self) -> list[str]:
        """Return the lab's names of the cluster's nodes."""
        names = json.loads(self.kubectl("get", "nodes", "-o=json"))["items"]
        return [node["metadata"]["name"].partition(".")[0] for node in names]

    def set_masters_schedulable(self, is_schedulable: bool) -> None:
        change = f"{CONTROL_PLANE_TAINT}-" if is_schedulable else f"{CONTROL_PLANE_TAINT}:NoSchedule"
        self.kubectl("taint", "nodes", "-l", CONTROL_PLANE_TAINT, "--overwrite", change)

    def tunnel_use(self) -> TunnelUse:
        """Return how often kube-apiserver has dialed through its egress selector."""
        return read_tunnel_use(self.kubectl("get", "--raw=/metrics"))

    def require_no_route_to_pods(self, without: str, with_one: str) -> None:
        """Raise PeerError UMB906 unless only the second node has a connection to a pod."""
        pods = json.loads(self.kubectl("-n=kube-system", "get", "pods", "-l=k8s-app=kube-dns", "-o=json"))["items"]
        address = pods[0]["status"]["podIP"]
        probe = ["python3", "-c", CONNECT, address, "53"]
        seen = [self._lab.exec(node, probe).exit_code == 0 for node in (without, with_one)]
        if seen != [False, True]:
            why = f"{without} connects to the pod {address}: {seen[0]}; {with_one}, which runs it: {seen[1]}"
            remedy = "umbilical stage doctor"
            raise peers.PeerError("UMB906", "the run would not show what the tunnel does", why, remedy)

    def run(self, wanted: SuiteRun, kept: Path) -> Path:
        """Run a part of the suite; keep its log and JUnit report, and return the report."""
        folder = f"{FOLDER}/{wanted.name}"
        report = locate(self._lab.directory.node_root(HOST), folder) / "junit_01.xml"
        report.unlink(missing_ok=True)
        self._report(f"conformance: {wanted.name}, {wanted.processes} processes, at most {wanted.minutes:.0f} min")
        self._lab.start(HOST, wanted.name, suite_command(wanted, folder))
        try:
            self._wait(wanted)
        finally:
            self._lab.stop(HOST, wanted.name)
            kept.mkdir(parents=True, exist_ok=True)
            log = kept / f"{wanted.name}.log"
            shutil.copyfile(self._lab.directory.log_file(HOST, wanted.name), log)
        if not report.is_file():
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            why = " | ".join(lines[-3:]) or "its log is empty"
            raise peers.PeerError("UMB904", f"the suite wrote no report: {wanted.name}", why, f"less {log}")
        return Path(shutil.copyfile(report, kept / f"{wanted.name}.xml"))

    def _wait(self, wanted: SuiteRun) -> None:
        started = time.monotonic()
        said = started
        while time.monotonic() - started < wanted.minutes * 60 + GRACE_SECONDS:
            if self._lab.process(HOST, wanted.name).exit_code is not None:
                return
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                ended = self._lab.log(HOST, wanted.name).count(ENDED)
                self._report(f"conformance: {wanted.name} ... {(said - started) / 60:.0f} min, {ended} specs")
            time.sleep(POLL_SECONDS)


def suite_command(wanted: SuiteRun, folder: str) -> list[str]:
    chosen = [f"--label-filter={wanted.labels}", *(f"--skip={one}" for one in wanted.skip)]
    chosen += [f"--focus={wanted.focus}"] if wanted.focus else []
    limits = [f"--procs={wanted.processes}", f"--timeout={int(wanted.minutes * 60)}s", "--no-color", "--silence-skips"]
    suite = [
        "--provider=skeleton",
        f"--kubeconfig={ADMIN}",
        "--kubectl-path=kubectl",
        f"--report-dir={folder}",
        f"--non-blocking-taints={CONTROL_PLANE_TAINT}",
        "--dump-logs-on-failure=false",
    ]
    ginkgo = [f"{FOLDER}/ginkgo", "run", *limits, *chosen, f"{FOLDER}/e2e.test"]
    return [*ginkgo, "--", *suite]


def _program(name: str) -> Path:
    found = peers.binary(name)
    if found is None:
        remedy = "make peers GROUP=conformance"
        raise peers.PeerError("UMB903", f"{name} is not in the cache", "the suite needs it", remedy)
    return found
