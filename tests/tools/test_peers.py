"""The builder of real peers, run as a user runs it, with a stand-in for the Go toolchain."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import peers

SCRIPT = Path(peers.__file__)
# Writes what it was called with into the file that -o names; `mod download` has none.
STAND_IN_GO = """#!/bin/sh
echo "$*" >> "$GO_CALLS"
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then printf '#!/bin/sh\\n' > "$2"; chmod 755 "$2"; fi
  shift
done
"""

Run = Callable[..., subprocess.CompletedProcess[str]]

ALL = [module for group in peers.groups().values() for module in group]
MODULES = {module.name: module for module in ALL}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "umbilical" / "peers"


@pytest.fixture
def run(tmp_path: Path, cache: Path) -> Run:
    """Run the script with a PATH that holds only the stand-in, or nothing."""
    tools = tmp_path / "bin"
    tools.mkdir()

    def run_script(*arguments: str, go: str | None = STAND_IN_GO) -> subprocess.CompletedProcess[str]:
        if go is not None:
            (tools / "go").write_text(go)
            (tools / "go").chmod(0o755)
        path = f"{tools}:/usr/bin:/bin" if go is not None else str(tools)
        environment = {**os.environ, "PATH": path, "GO_CALLS": str(tmp_path / "calls")}
        command = [sys.executable, str(SCRIPT), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run_script


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_build_without_go_names_the_remedy_in_three_lines(run: Run) -> None:
    done = run("build", "--group", "konnectivity", go=None)
    first, why, remedy = done.stderr.splitlines()
    assert done.returncode == 1
    assert first == "UMB901 the Go toolchain is missing"
    assert why.startswith("  why: ")
    assert remedy.startswith("  next: install Go ")


def test_failed_download_names_the_registry_and_gives_go_s_own_reason(run: Run) -> None:
    done = run("build", "--group", "bench", go="#!/bin/sh\necho 'go: no such host' >&2\nexit 1\n")
    first, why, remedy = done.stderr.splitlines()
    assert done.returncode == 1
    assert first.startswith("UMB902 peer build failed: bench ")
    assert why == "  why: go: no such host"
    assert "registry" in remedy


def test_go_that_is_too_old_is_answered_with_the_version_to_install(run: Run) -> None:
    complaint = "go: go.mod requires go >= 1.26.2 (running go 1.19)"
    done = run("build", "--group", "bench", go=f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    assert complaint in done.stderr
    assert "next: install the Go version above" in done.stderr


def test_failed_build_leaves_nothing_behind(run: Run, cache: Path) -> None:
    done = run("build", "--group", "bench", go='#!/bin/sh\n[ "$1" = mod ] || { echo boom >&2; exit 1; }\n')
    assert done.returncode == 1
    assert "build of umbilical-load" in done.stderr
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_build_makes_a_flat_folder_and_then_only_what_is_missing(run: Run, cache: Path, tmp_path: Path) -> None:
    first = run("build", "--group", "konnectivity")
    oldest, folder = sorted(cache.iterdir())
    built = sorted(path.name for path in folder.iterdir())
    (folder / "proxy-agent").unlink()
    calls_before = len(calls(tmp_path))
    second = run("build", "--group", "konnectivity")
    assert first.returncode == second.returncode == 0
    assert folder.name == "konnectivity-v0.36.0"
    assert oldest.name == "konnectivity-0.30-v0.30.3"
    assert sorted(path.name for path in oldest.iterdir()) == ["proxy-agent-v0.30.3", "proxy-server-v0.30.3"]
    assert built == ["proxy-agent", "proxy-server", "proxy-test-client", "proxy-test-server", "proxy-tests"]
    download, build = calls(tmp_path)[calls_before:]
    assert download == "mod download"
    assert build.endswith("/cmd/agent")


def test_build_names_what_is_missing_and_counts_the_programs(run: Run, cache: Path) -> None:
    first = run("build", "--group", "kubernetes")
    (cache / f"kubernetes-{peers.KUBERNETES_VERSION}" / "kubelet").unlink()
    second = run("build", "--group", "kubernetes")
    assert f"kubernetes {peers.KUBERNETES_VERSION}: missing kube-apiserver, kubectl, " in first.stdout
    assert f"kubernetes {peers.KUBERNETES_VERSION}: kubelet (5 of 6) " in first.stdout
    assert "etcd v3.7.0: all in " in second.stdout
    assert f"kubernetes {peers.KUBERNETES_VERSION}: missing kubelet\n" in second.stdout
    assert f"kubernetes {peers.KUBERNETES_VERSION}: kubelet (1 of 1) " in second.stdout


@pytest.fixture
def slow_go(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolchain that takes its time, and signs of life that do not wait for half a minute."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "go").write_text(f"{STAND_IN_GO}exec sleep 1\n")
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("GO_CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(peers, "PROGRESS_SECONDS", 0.05)


@pytest.mark.usefixtures("slow_go")
def test_a_long_step_gives_a_sign_of_life_now_and_then() -> None:
    lines: list[str] = []
    peers.build("bench", lines.append)
    assert any(re.search(r": umbilical-load \(1 of 1\) \.\.\. \d+ s$", line) for line in lines)
    assert re.search(r": umbilical-relay \(1 of 1\) \d+\.\d s$", lines[-1])


@pytest.mark.usefixtures("slow_go")
def test_a_step_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "GO_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(peers.PeerError, match="timed out after"):
        peers.build("bench", lambda line: None)


def test_path_prints_where_a_cached_program_is_and_fails_otherwise(run: Run, cache: Path) -> None:
    absent = run("path", "umbilical-load")
    run("build", "--group", "bench")
    present = run("path", "umbilical-load")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert present.returncode == 0
    assert Path(present.stdout.strip()).parent.parent == cache


@pytest.fixture
def carrier(tmp_path: Path) -> Path:
    """What `go mod download` would leave: the module's folder with the files in it."""
    for module in peers.groups()["crds"]:
        for document in module.documents:
            path = tmp_path / "module" / document.path
            path = path / "one.crd.yaml" if document.is_folder else path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"kind: CustomResourceDefinition # {document.name}\n")
            if document.is_folder:
                path.parent.chmod(0o555)
    return tmp_path / "module"


def go_that_downloads(carrier: Path, *, honest: bool = True) -> str:
    """A Go that answers with the sum that go.sum of the folder it runs in has, or with another."""
    pinned = "$(awk 'NR == 1 { print $3 }' go.sum)" if honest else "h1:other="
    return f"""#!/bin/sh
[ "$1 $2 $3" = "mod download -json" ] || exit 64
printf '{{"Dir": "{carrier}", "Sum": "%s"}}' "{pinned}"
"""


def test_documents_of_a_module_are_copied_whole_and_found_by_name(
    run: Run, cache: Path, carrier: Path, tmp_path: Path
) -> None:
    done = run("build", "--group", "crds", go=go_that_downloads(carrier))
    found = run("path", "routes.crd.yaml")
    assert done.returncode == 0, done.stderr
    assert Path(found.stdout.strip()).read_text() == "kind: CustomResourceDefinition # routes.crd.yaml\n"
    kinds = ("podmonitors", "prometheusrules", "servicemonitors")
    names = sorted(path.name for path in (cache / "prometheus-operator-v0.85.0").iterdir())
    assert names == [f"monitoring.coreos.com_{kind}.yaml" for kind in kinds]
    assert peers.document("routes.crd.yaml") is not None
    assert peers.binary("routes.crd.yaml") is None
    folder = peers.document("featuregates")
    assert folder is not None
    assert run("path", "featuregates").stdout.strip() == str(folder)
    assert [path.name for path in folder.iterdir()] == ["one.crd.yaml"]
    assert folder.stat().st_mode & 0o200
    assert not list(folder.parent.glob(".copying-*"))
    (tmp_path / "bin" / "go").unlink()
    assert run("build", "--group", "crds", go=None).returncode == 0, "what is cached needs no Go"


def test_a_file_in_the_place_of_a_folder_is_not_taken_for_it(cache: Path) -> None:
    module = peers.groups()["crds"][0]
    module.folder.mkdir(parents=True)
    (module.folder / "crds").write_text("no folder")
    assert peers.document("crds") is None
    assert "crds" in [document.name for document in module.missing_documents()]


def test_a_second_build_keeps_the_folder_of_the_first(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.yaml").write_text(name)
        peers._copy_whole(tmp_path / name, tmp_path / "cached")
    assert (tmp_path / "cached" / "one.yaml").read_text() == "first"


def test_a_module_with_another_sum_or_without_an_expected_document_is_refused(
    run: Run, cache: Path, carrier: Path, tmp_path: Path
) -> None:
    for go, why in (
        (go_that_downloads(carrier, honest=False), "h1:other="),
        (go_that_downloads(tmp_path / "empty"), "routes.crd.yaml"),
    ):
        done = run("build", "--group", "crds", go=go)
        assert done.returncode == 1
        assert done.stderr.startswith("UMB902 peer build failed: openshift-api ")
        assert why in done.stderr
        assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_download_that_go_refuses_in_its_answer_is_reported_with_go_s_reason(run: Run) -> None:
    refusal = '#!/bin/sh\nprintf \'{"Error": "403 Forbidden"}\'\nexit 1\n'
    done = run("build", "--group", "crds", go=refusal)
    assert done.stderr.splitlines()[1] == "  why: 403 Forbidden"
    assert "registry" in done.stderr.splitlines()[2]


def test_a_group_on_request_is_built_by_its_name_alone(run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = peers.groups()
    chosen = {name: every[name][:1] for name in ("h2spec", *peers.ON_REQUEST)}
    monkeypatch.setattr(peers, "groups", lambda: chosen)
    # It also writes the stand-in for Go.
    run("path", "helm")
    monkeypatch.setenv("PATH", f"{cache.parents[2] / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("GO_CALLS", str(cache.parents[2] / "calls"))
    peers.build(report=lambda line: None)
    assert (peers.binary("h2spec") is not None, peers.binary("helm")) == (True, None)
    peers.build("helm", report=lambda line: None)
    assert peers.binary("helm") is not None


def test_binary_is_none_for_a_name_that_no_group_builds(cache: Path) -> None:
    stray = cache / "konnectivity-v0.36.0" / "stray"
    stray.parent.mkdir(parents=True)
    stray.write_text("#!/bin/sh\n")
    stray.chmod(0o755)
    assert peers.binary("stray") is None


def test_changed_source_gives_the_generator_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text("package main\n")
    before = peers.source_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("not a source")
    unchanged = peers.source_digest(tmp_path)
    (tmp_path / "main.go").write_text("package main // changed\n")
    assert before == unchanged
    assert before != peers.source_digest(tmp_path)


def test_every_version_in_the_table_is_the_one_that_go_mod_pins() -> None:
    pins = {
        "konnectivity": peers.UPSTREAM,
        "etcd": "go.etcd.io/etcd/server/v3",
        "kubernetes": "k8s.io/kubernetes",
        "conformance": "k8s.io/kubernetes",
        "ignition": peers.IGNITION,
        "helm": peers.HELM,
        "cert-manager": peers.CERT_MANAGER,
        "openshift-api": peers.OPENSHIFT_API,
        "prometheus-operator": peers.PROMETHEUS_OPERATOR,
    }
    pins |= {f"konnectivity-{minor}": peers.UPSTREAM for minor in ("0.30", "0.31", "0.34")}
    pins |= {f"kubernetes-{minor}": "k8s.io/kubernetes" for minor in ("1.33", "1.34", "1.35", "1.36")}
    for name, path in pins.items():
        text = (MODULES[name].source / "go.mod").read_text()
        assert re.search(rf"^(require )?\s*{re.escape(path)} {re.escape(MODULES[name].version)}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    "module", [one for one in ALL if one.name.startswith(("kubernetes", "conformance"))], ids=lambda one: one.name
)
def test_every_staging_module_and_program_of_kubernetes_is_the_pinned_one(module: peers.Module) -> None:
    text = (module.source / "go.mod").read_text()
    replaced = re.findall(r"^\t(\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 30
    staged = module.version.replace("v1.", "v0.")
    assert all(old == new and version == staged for old, new, version in replaced)
    pins = (module.source / "pins.go").read_text()
    assert all(f'_ "{program.package}"' in pins for program in module.programs)


def test_a_build_of_all_leaves_out_the_groups_that_are_built_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(peers, "_build_module", lambda module, report: built.append(module.name))
    peers.build()
    assert ("kubernetes" in built, "konnectivity-0.30" in built, "kubernetes-1.33" in built) == (True, True, False)
    assert peers.SECOND_GROUP not in built
    peers.build("compatibility")
    assert "kubernetes-1.33" in built


def test_the_second_version_of_kubernetes_is_built_whole_with_its_version_in_the_names() -> None:
    every = peers.groups()
    (module,) = (one for one in every[peers.SECOND_GROUP] if one.name == peers.SECOND_GROUP)
    (default,) = (one for one in every["kubernetes"] if one.name == "kubernetes")
    names = [f"{one.name}-{peers.SECOND_KUBERNETES}" for one in default.programs]
    assert [one.name for one in module.programs] == names
    (compared,) = (one for one in every["compatibility"] if one.name == peers.SECOND_GROUP)
    assert compared.folder == module.folder, "what one group built the other does not build again"


def test_kubernetes_programs_get_their_version_from_the_linker() -> None:
    flags = peers.kubernetes_linker_flags("v1.36.3")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in flags
