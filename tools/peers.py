"""Builds the real programs for tests and benchmarks of Umbilical, and fetches the CRDs of its objects.

Each Go module under `peers/` pins its dependencies. The binaries are in one folder per version outside the tree.
Standard library only, so that it runs before any environment exists. See docs/peers.md.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

MODULES: Final = Path(__file__).resolve().parent.parent / "peers"
# Two slow cores and a cold cache need about ten minutes for the largest program.
GO_TIMEOUT_SECONDS: Final = 3600.0
# Ten minutes without output look like a hang.
PROGRESS_SECONDS: Final = 30.0
# Read-only: only what the committed go.sum pins is built.
GO_FLAGS: Final = "-mod=readonly -trimpath -buildvcs=false"
UPSTREAM: Final = "sigs.k8s.io/apiserver-network-proxy"
UPSTREAM_VERSION: Final = "v0.36.0"
OLDER_UPSTREAM: Final = ("v0.34.0", "v0.31.4", "v0.30.3")
"""Versions with which server and agent are compared; the oldest also in every run of the real tests."""
KUBERNETES: Final = "k8s.io/kubernetes"
KUBERNETES_VERSION: Final = "v1.37.1"
SECOND_KUBERNETES: Final = "v1.36.3"
"""The version that a group of its own builds whole, for `--kubernetes-version`."""
OTHER_KUBERNETES: Final = (SECOND_KUBERNETES, "v1.35.4", "v1.34.4", "v1.33.13")
KUBERNETES_PROGRAMS: Final = (
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
)
SECOND_GROUP: Final = "kubernetes-1.36"
IGNITION: Final = "github.com/coreos/ignition/v2"
IGNITION_VERSION: Final = "v2.24.0"
OPENSHIFT_API: Final = "github.com/openshift/api"
OPENSHIFT_API_VERSION: Final = "v0.0.0-20260813212709-d4bb0b443cb8"
PROMETHEUS_OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator"
H2SPEC: Final = "github.com/summerwind/h2spec"
ON_REQUEST: Final = ("compatibility", "helm", "kubeadm", SECOND_GROUP)
"""Groups that only `--group` builds: they take long, and few commands need them."""
CHOSEN: Final = "UMBILICAL_PEER_VERSIONS"
"""Environment variable `NAME=VERSION ...`: the version of a program that lookups by its name find."""
CERT_MANAGER: Final = "github.com/cert-manager/cert-manager"
HELM: Final = "helm.sh/helm/v3"
HELM_VERSION: Final = "v3.22.0"


class PeerError(Exception):
    """A peer failed to build; contains the three lines for the user."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")
        self.code = code


@dataclass(frozen=True)
class PeerProgram:
    """One binary: its name in the cache and its Go package."""

    name: str
    package: str
    is_test_suite: bool = False


@dataclass(frozen=True)
class PeerFile:
    """One file or folder of a Go module: its name in the cache and its path in the module."""

    path: str
    is_folder: bool = False

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    def is_at(self, path: Path) -> bool:
        return path.is_dir() if self.is_folder else path.is_file()


@dataclass(frozen=True)
class Module:
    """One Go module under `peers/` with its programs and files."""

    name: str
    version: str
    programs: tuple[PeerProgram, ...] = ()
    linker_flags: str = ""
    carrier: str = ""
    """The Go module that contains `documents`."""
    documents: tuple[PeerFile, ...] = ()

    @property
    def source(self) -> Path:
        return MODULES / self.name

    @property
    def folder(self) -> Path:
        return cache_root() / f"{self.name}-{self.version}"

    def missing(self) -> list[PeerProgram]:
        return [program for program in self.programs if not _is_runnable(self.folder / program.name)]

    def missing_documents(self) -> list[PeerFile]:
        return [document for document in self.documents if not document.is_at(self.folder / document.name)]


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umbilical" / "peers"


def source_digest(folder: Path) -> str:
    """Return a hash of our own sources, so that a changed generator is built again."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def kubernetes_linker_flags(version: str) -> str:
    """Without these the programs report the version v0.0.0-master, and version checks fail."""
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return "-s -w " + " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


def helm_linker_flags(version: str) -> str:
    """Set Helm's version, and the version of Kubernetes that it renders and lints for: else it takes 1.20."""
    major, minor = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
    values = {f"{HELM}/internal/version.version": version}
    for package in (f"{HELM}/pkg/chartutil", f"{HELM}/pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return "-s -w " + " ".join(f"-X {name}={value}" for name, value in values.items())


def _conformance() -> Module:
    """Kubernetes' own test suite, and the programs of images that its specs use."""
    images = f"{KUBERNETES}/test/images"
    return Module(
        "conformance",
        KUBERNETES_VERSION,
        (
            PeerProgram("e2e.test", f"{KUBERNETES}/test/e2e", is_test_suite=True),
            PeerProgram("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo"),
            PeerProgram("agnhost", f"{images}/agnhost"),
            PeerProgram("nnp", f"{images}/nonewprivs"),
            PeerProgram("regression-issue-74839", f"{images}/regression-issue-74839"),
            PeerProgram("sample-apiserver", "k8s.io/sample-apiserver"),
        ),
        kubernetes_linker_flags(KUBERNETES_VERSION),
        KUBERNETES,
        # agnhost reads them when it serves HTTPS.
        (PeerFile("test/images/agnhost/porter/localhost.crt"), PeerFile("test/images/agnhost/porter/localhost.key")),
    )


def _older_upstream(version: str) -> Module:
    commands = {"proxy-server": "server", "proxy-agent": "agent"}
    programs = (PeerProgram(_versioned(name, version), f"{UPSTREAM}/cmd/{kind}") for name, kind in commands.items())
    return Module(f"konnectivity-{_minor(version)}", version, tuple(programs))


def _other_kubernetes(version: str, names: tuple[str, ...] = ("kube-apiserver",)) -> Module:
    programs = tuple(PeerProgram(_versioned(name, version), f"{KUBERNETES}/cmd/{name}") for name in names)
    return Module(f"kubernetes-{_minor(version)}", version, programs, kubernetes_linker_flags(version))


def _versioned(name: str, version: str) -> str:
    return f"{name}-{version}"


def _minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])


def _own(name: str, program: str) -> Module:
    """A module whose sources are all ours."""
    return Module(name, source_digest(MODULES / name), (PeerProgram(program, "."),), "-s -w")


def groups() -> dict[str, tuple[Module, ...]]:
    """Return the modules of each group, in build order."""
    konnectivity = Module(
        "konnectivity",
        UPSTREAM_VERSION,
        (
            PeerProgram("proxy-server", f"{UPSTREAM}/cmd/server"),
            PeerProgram("proxy-agent", f"{UPSTREAM}/cmd/agent"),
            PeerProgram("proxy-test-client", f"{UPSTREAM}/cmd/test-client"),
            PeerProgram("proxy-test-server", f"{UPSTREAM}/cmd/test-server"),
            PeerProgram("proxy-tests", f"{UPSTREAM}/tests", is_test_suite=True),
        ),
    )
    etcd = Module(
        "etcd", "v3.7.0", (PeerProgram("etcd", "."), PeerProgram("etcdctl", "go.etcd.io/etcd/etcdctl/v3")), "-s -w"
    )
    coredns = Module("coredns", "v1.14.0", (PeerProgram("coredns", "github.com/coredns/coredns"),), "-s -w")
    kubernetes = Module(
        "kubernetes",
        KUBERNETES_VERSION,
        tuple(PeerProgram(name, f"{KUBERNETES}/cmd/{name}") for name in KUBERNETES_PROGRAMS),
        kubernetes_linker_flags(KUBERNETES_VERSION),
    )
    bench = (_own("bench", "umbilical-load"), _own("relay", "umbilical-relay"))
    validate = PeerProgram("ignition-validate", f"{IGNITION}/validate")
    version_flag = f"-s -w -X {IGNITION}/internal/version.Raw={IGNITION_VERSION}"
    ignition = Module("ignition", IGNITION_VERSION, (validate,), version_flag)
    helm = Module("helm", HELM_VERSION, (PeerProgram("helm", f"{HELM}/cmd/helm"),), helm_linker_flags(HELM_VERSION))
    h2spec = Module("h2spec", "v2.2.1+incompatible", (PeerProgram("h2spec", f"{H2SPEC}/cmd/h2spec"),), "-s -w")
    *newer, oldest = map(_older_upstream, OLDER_UPSTREAM)
    return {
        "konnectivity": (konnectivity, oldest),
        "h2spec": (h2spec,),
        "bench": bench,
        "kubernetes": (etcd, kubernetes, coredns),
        "ignition": (ignition,),
        "crds": _crds(),
        "conformance": (_conformance(),),
        "compatibility": (*newer, oldest, *map(_other_kubernetes, OTHER_KUBERNETES)),
        "helm": (helm, _cert_manager()),
        # The module of the group kubernetes, so that both have one version.
        "kubeadm": (replace(kubernetes, programs=(PeerProgram("kubeadm", f"{KUBERNETES}/cmd/kubeadm"),)),),
        SECOND_GROUP: (etcd, _other_kubernetes(SECOND_KUBERNETES, KUBERNETES_PROGRAMS), coredns),
    }


def _cert_manager() -> Module:
    """CRDs of the objects that the chart makes for cert-manager."""
    files = tuple(PeerFile(f"deploy/crds/cert-manager.io_{kind}.yaml") for kind in ("certificates", "issuers"))
    return Module("cert-manager", "v1.21.2", carrier=CERT_MANAGER, documents=files)


def _crds() -> tuple[Module, ...]:
    """CRDs that hosted and hand-made control planes use."""
    route = PeerFile("route/v1/zz_generated.crd-manifests/routes.crd.yaml")
    kinds = ("servicemonitors", "podmonitors", "prometheusrules")
    monitoring = tuple(PeerFile(f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml") for kind in kinds)
    return (
        Module("openshift-api", OPENSHIFT_API_VERSION, carrier=OPENSHIFT_API, documents=(route, *_payload())),
        Module("prometheus-operator", "v0.85.0", carrier=PROMETHEUS_OPERATOR, documents=monitoring),
    )


def _payload() -> tuple[PeerFile, ...]:
    """API files of an OpenShift release: most in two folders, the rest from the operators that own them."""
    folders = (PeerFile(f"payload-manifests/{name}", is_folder=True) for name in ("crds", "featuregates"))
    # Two variants by feature set, so that tests can choose.
    sets = ("Default", "TechPreviewNoUpgrade")
    version_operator = "config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01"
    network_operator = "operator/v1/zz_generated.crd-manifests/0000_70_network_01"
    return (
        *folders,
        PeerFile(f"{version_operator}_clusteroperators.crd.yaml"),
        *(PeerFile(f"{version_operator}_clusterversions-{one}.crd.yaml") for one in sets),
        *(PeerFile(f"{network_operator}_networks-{one}.crd.yaml") for one in sets),
    )


def binary(name: str) -> Path | None:
    """Return the path of the cached program; None if it is not built."""
    chosen = dict(one.split("=", 1) for one in os.environ.get(CHOSEN, "").split())
    name = _versioned(name, chosen[name]) if name in chosen else name
    for module in _modules(groups()):
        path = module.folder / name
        if any(program.name == name for program in module.programs) and _is_runnable(path):
            return path
    return None


def group_on_request(name: str) -> str | None:
    """Return the group of ON_REQUEST that has this program."""
    found = (group for group in ON_REQUEST for module in groups()[group] for one in module.programs if one.name == name)
    return next(found, None)


def document(name: str) -> Path | None:
    """Return the path of the cached file or folder; None if it is missing."""
    for module in _modules(groups()):
        path = module.folder / name
        if any(document.name == name and document.is_at(path) for document in module.documents):
            return path
    return None


def build(group: str | None = None, report: Callable[[str], None] = print) -> None:
    """Build what is missing of the group, or of every group that needs no request.

    Raises:
        PeerError: Go is missing, or a download or build failed.
    """
    for name, modules in groups().items():
        if name == group or (not group and name not in ON_REQUEST):
            for module in modules:
                _build_module(module, report)


def _modules(chosen: dict[str, tuple[Module, ...]]) -> list[Module]:
    return [module for modules in chosen.values() for module in modules]


def _is_runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _build_module(module: Module, report: Callable[[str], None]) -> None:
    title = f"peers: {module.name} {module.version}"
    missing = module.missing()
    documents = module.missing_documents()
    if not missing and not documents:
        report(f"{title}: all in {module.folder}")
        return
    go = _go_toolchain()
    names = [program.name for program in missing] + [document.name for document in documents]
    report(f"{title}: missing {', '.join(names)}")
    progress = Progress(f"{title}: modules", report)
    if documents:
        _fetch_documents(go, module, documents, progress)
    if missing:
        _run_go(go, module, ["mod", "download"], "download", progress)
    module.folder.mkdir(parents=True, exist_ok=True)
    for number, program in enumerate(missing, 1):
        label = f"{title}: {program.name} ({number} of {len(missing)})"
        _build_program(go, module, program, Progress(label, report))


class Progress:
    """Reports that a step continues, and how long it took."""

    def __init__(self, label: str, report: Callable[[str], None]) -> None:
        self._label = label
        self._report = report
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def goes_on(self) -> None:
        self._report(f"{self._label} ... {self.seconds:.0f} s")

    def ended(self) -> None:
        self._report(f"{self._label} {self.seconds:.1f} s")


def _build_program(go: str, module: Module, program: PeerProgram, progress: Progress) -> None:
    """Build in a temporary folder and rename, so that a binary is complete or absent."""
    # Vet would look at every dependency: as long as the build of the largest suite.
    verb = ["test", "-c", "-vet=off"] if program.is_test_suite else ["build"]
    with tempfile.TemporaryDirectory(prefix=".building-", dir=module.folder) as scratch:
        output = Path(scratch) / program.name
        flags = ["-ldflags", module.linker_flags, "-o", str(output)]
        _run_go(go, module, [*verb, *flags, program.package], f"build of {program.name}", progress)
        output.replace(module.folder / program.name)


def _fetch_documents(go: str, module: Module, documents: list[PeerFile], progress: Progress) -> None:
    """Download the module with Go and compare its sum with go.sum: only a build would check it."""
    said = _run_go(go, module, ["mod", "download", "-json", f"{module.carrier}@{module.version}"], "download", progress)
    answer = json.loads(said)
    pinned = (module.source / "go.sum").read_text().splitlines()
    if f"{module.carrier} {module.version} {answer['Sum']}" not in pinned:
        raise _build_error(module, "download", f"its sum {answer['Sum']} is not in peers/{module.name}/go.sum")
    module.folder.mkdir(parents=True, exist_ok=True)
    for document in documents:
        source = Path(answer["Dir"]) / document.path
        if not document.is_at(source):
            raise _build_error(module, "download", f"{document.path} is missing in {module.carrier}@{module.version}")
        _copy_whole(source, module.folder / document.name)


def _copy_whole(source: Path, target: Path) -> None:
    """Copy into a temporary folder and rename, so that the copy is complete or absent."""
    with tempfile.TemporaryDirectory(prefix=".copying-", dir=target.parent) as scratch:
        copy = Path(scratch) / target.name
        if source.is_dir():
            _copy_folder(source, copy)
        else:
            copy.write_bytes(source.read_bytes())
        try:
            copy.replace(target)
        except OSError:
            # A folder cannot replace another: a parallel run was faster, with the same content.
            if not target.is_dir():
                raise


def _copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a flat folder without their modes: Go's cache is read-only."""
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


def _go_toolchain() -> str:
    go = shutil.which("go")
    if go is None:
        raise PeerError(
            "UMB901",
            "the Go toolchain is missing",
            "`go` is not on PATH, and the real peers are built from source",
            "install Go 1.26.2 or newer (https://go.dev/dl), then run `make peers` again",
        )
    return go


def _run_go(go: str, module: Module, arguments: list[str], step: str, progress: Progress) -> str:
    """Run Go in the module's folder and return its output; error output is shown only if it fails."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": GO_FLAGS, "GOWORK": "off"}
    with subprocess.Popen(
        [go, *arguments],
        cwd=module.source,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            ended = _wait(process, progress)
        except BaseException:
            process.kill()
            raise
    if ended is None:
        raise _build_error(module, step, f"timed out after {GO_TIMEOUT_SECONDS:.0f} s")
    output, complaint = ended
    if process.returncode != 0:
        # With -json, Go's errors are in the output.
        raise _build_error(module, step, _last_line(complaint) or _json_error(output) or _exit_text(process))
    progress.ended()
    return output


def _exit_text(process: subprocess.Popen[str]) -> str:
    return f"go exited with {process.returncode}"


def _json_error(output: str) -> str:
    try:
        return _last_line(str(json.loads(output).get("Error", "")))
    except (ValueError, AttributeError):
        return ""


def _wait(process: subprocess.Popen[str], progress: Progress) -> tuple[str, str] | None:
    """Wait for the end and report progress; return output and errors, or None after the timeout."""
    while progress.seconds < GO_TIMEOUT_SECONDS:
        try:
            return process.communicate(timeout=PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            progress.goes_on()
    process.kill()
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _packages(module: Module) -> str:
    return " ".join(program.package for program in module.programs if not program.is_test_suite)


def _build_error(module: Module, step: str, why: str) -> PeerError:
    if "requires go >=" in why:
        remedy = "install the Go version above, or let Go download it: GOTOOLCHAIN=auto make peers"
    elif step == "download":
        remedy = "check that the Go module registry can be reached (`go env GOPROXY`), then run `make peers` again"
    else:
        remedy = f"show all messages of Go: cd peers/{module.name} && go build -v {_packages(module)}"
    return PeerError("UMB902", f"peer build failed: {module.name} {module.version}, {step}", why, remedy)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Build and find the real peers.")
    commands = parser.add_subparsers(dest="command", required=True)
    build_command = commands.add_parser("build", help="build what is missing")
    build_command.add_argument(
        "--group", choices=sorted(groups()), help=f"only this group (default: all but {', '.join(ON_REQUEST)})"
    )
    path_command = commands.add_parser("path", help="print the path of a cached program or file, or exit 1")
    path_command.add_argument("name")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "path":
        found = binary(options.name) or document(options.name)
        if found is not None:
            print(found)
        return 0 if found is not None else 1
    try:
        build(options.group, lambda line: print(line, flush=True))
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
