"""Programs of a lab: real ones found on this machine, our own launched, and the images they become."""

import platform
import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.fixture_types import Patch
from tests.support.web_server import Handler, serving

from umbilical.fault import LabError
from umbilical.lab import binaries
from umbilical.lab.binaries import OWN_PROGRAMS, install_programs, launcher
from umbilical.lab.images import KONNECTIVITY, TUNNEL, UMBILICAL, distinct, from_json, lab_images, to_json

OTHER_MACHINE = 22 if platform.machine() == "x86_64" else 62


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: Patch) -> Path:
    """An empty cache and a PATH of one empty directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def program(path: Path, content: bytes = b"#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def cached(places: Path, folder: str, name: str) -> Path:
    return program(places / "cache" / "umbilical" / "peers" / folder / name)


def elf(machine: int, byte_order: int = 1) -> bytes:
    number = machine.to_bytes(2, "big" if byte_order == 2 else "little")
    return b"\x7fELF\x02" + bytes([byte_order]) + bytes(12) + number + bytes(40)


def test_the_named_directory_wins_over_the_cache_and_the_cache_over_path(places: Path) -> None:
    on_path = program(places / "path" / "kubectl")
    assert binaries.find(["kubectl"]) == {"kubectl": on_path}
    in_cache = cached(places, "kubernetes-v1.36.3", "kubectl")
    assert binaries.find(["kubectl"]) == {"kubectl": in_cache}
    given = program(places / "given" / "kubectl")
    assert binaries.find(["kubectl"], places / "given") == {"kubectl": given}
    given = program(places / "given" / "kubectl")
    etcd = cached(places, "etcd-v3.6.8", "etcd")
    assert binaries.find(["etcd", "kubectl"], places / "given") == {"etcd": etcd, "kubectl": given}


def test_the_newest_version_in_the_cache_is_taken_and_links_are_followed(places: Path) -> None:
    cached(places, "kubernetes-v1.9.0", "kubectl")
    cached(places, "kubernetes-v1.36.3-rc.1", "kubectl")
    newest = cached(places, "kubernetes-v1.36.3", "kubectl")
    assert binaries.find(["kubectl"]) == {"kubectl": newest}
    real = program(places / "elsewhere" / "etcd-3.6")
    (places / "path").mkdir()
    (places / "path" / "etcd").symlink_to(real)
    assert binaries.find(["etcd"]) == {"etcd": real}


def test_a_version_of_kubernetes_is_chosen_among_those_in_the_cache(places: Path) -> None:
    newest = cached(places, "kubernetes-v1.37.1", "kubelet")
    second = cached(places, "kubernetes-1.36-v1.36.3", "kubelet-v1.36.3")
    older = cached(places, "kubernetes-v1.36.2", "kubelet")
    etcd = cached(places, "etcd-v3.6.8", "etcd")
    for asked, found in {None: newest, "1.37": newest, "v1.36": second, "1.36.3": second, "v1.36.2": older}.items():
        assert binaries.find(["etcd", "kubelet"], version=asked) == {"etcd": etcd, "kubelet": found}
    given = program(places / "given" / "kubelet")
    assert binaries.find(["kubelet"], places / "given", "1.36") == {"kubelet": given}, "the user's directory is first"
    assert binaries.cached_versions() == ["v1.37.1", "v1.36.3", "v1.36.2"]
    assert binaries.full_version("1.35") == "v1.35"


def test_a_version_that_is_not_built_or_not_whole_is_an_error_with_the_command_that_builds_it(places: Path) -> None:
    cached(places, "kubernetes-v1.37.1", "kubelet")
    cached(places, "kubernetes-1.36-v1.36.3", "kube-apiserver-v1.36.3")
    with pytest.raises(LabError, match="UMB824") as caught:
        binaries.find((*binaries.CONTROL_PLANE[1:], "kubelet"), version="1.36")
    assert caught.value.what == "a needed program of Kubernetes v1.36.3 is missing: kubectl, kubelet"
    assert "versions in the cache: v1.37.1, v1.36.3" in caught.value.why
    assert "`make peers GROUP=kubernetes-1.36`" in caught.value.remedy
    with pytest.raises(LabError, match="UMB824") as caught:
        binaries.find(["kubelet"], version="v1.30.0")
    assert "choose 1.37.1 or 1.36.3" in caught.value.remedy
    assert "make peers" not in caught.value.remedy
    for folder in (places / "cache" / "umbilical" / "peers").iterdir():
        folder.rename(places / folder.name)
    with pytest.raises(LabError, match="in the cache: none") as caught:
        binaries.find(["kubelet"], version="1.37")
    assert "`make peers GROUP=kubernetes`" in caught.value.remedy


def test_a_program_on_path_is_taken_for_a_version_only_if_it_says_so(places: Path) -> None:
    kubelet = program(places / "path" / "kubelet", b"#!/bin/sh\n[ $1 = --version ] && echo Kubernetes v1.36.3\n")
    kubectl = program(places / "path" / "kubectl", b"#!/bin/sh\necho Client Version: v1.36.3\n")
    assert binaries.find(["kubelet", "kubectl"], version="v1.36.3") == {"kubelet": kubelet, "kubectl": kubectl}
    for content in (b"#!/bin/sh\necho Kubernetes v1.36.30\n", b"#!/bin/sh\nexit 1\n"):
        program(kubelet, content)
        with pytest.raises(LabError, match="UMB824"):
            binaries.find(["kubelet"], version="v1.36.3")


def test_the_versions_of_a_lab_are_those_that_make_peers_builds_whole() -> None:
    import peers

    assert list(binaries.WHOLE_VERSIONS) == [peers.KUBERNETES_VERSION, peers.SECOND_KUBERNETES]
    for version, group in binaries.WHOLE_VERSIONS.items():
        built = {one.name for module in peers.groups()[group] for one in module.programs}
        assert {*binaries.VERSIONED} <= {name.removesuffix(f"-{version}") for name in built}


@pytest.mark.parametrize("name", binaries.KONNECTIVITY)
def test_a_program_on_path_never_passes_for_upstream_s_of_the_same_name(places: Path, name: str) -> None:
    program(places / "path" / name)

    with pytest.raises(LabError, match="UMB824") as caught:
        binaries.find([name])
    assert "PATH" not in caught.value.why
    assert "make peers GROUP=konnectivity" in caught.value.remedy

    built = cached(places, "konnectivity-v0.36.0", name)
    assert binaries.find([name]) == {name: built}


def test_everything_that_is_missing_is_named_at_once_with_all_remedies(places: Path) -> None:
    program(places / "path" / "kubectl")
    with pytest.raises(LabError, match="UMB824") as caught:
        binaries.find(binaries.CONTROL_PLANE, places / "given")
    assert caught.value.what.endswith("etcd, kube-apiserver")
    assert str(places / "given") in caught.value.why
    assert "make peers GROUP=kubernetes" in caught.value.remedy
    assert "--bin-dir" in caught.value.remedy
    with pytest.raises(LabError) as caught:
        binaries.find(["etcd", "proxy-agent"])
    assert "GROUP=kubernetes` and `make peers GROUP=konnectivity" in caught.value.remedy
    with pytest.raises(LabError) as caught:
        binaries.find(["helm"])
    assert "make peers GROUP=helm" in caught.value.remedy
    with pytest.raises(LabError) as caught:
        binaries.find(binaries.OTHER_VERSION, places / "given")
    assert "--bin-dir" in caught.value.remedy
    assert "make peers" not in caught.value.remedy, "they are the user's"


def test_a_file_that_cannot_be_run_is_refused_by_name(places: Path) -> None:
    path = program(places / "given" / "etcd", mode=0o644)
    with pytest.raises(LabError, match="UMB825") as caught:
        binaries.find(["etcd"], places / "given")
    assert str(path) in caught.value.what
    assert "not executable" in caught.value.why
    (places / "other" / "etcd").mkdir(parents=True)
    with pytest.raises(LabError, match="not a regular file"):
        binaries.find(["etcd"], places / "other")


def test_a_program_of_another_machine_is_refused(places: Path) -> None:
    for content, reason in (
        (elf(OTHER_MACHINE), "another architecture"),
        (elf(OTHER_MACHINE, byte_order=2), "another architecture"),
        (b"\xcf\xfa\xed\xfe" + bytes(40), "neither a Linux program"),
        (b"\x7fELF\x02", "neither a Linux program"),
        (b"", "neither a Linux program"),
    ):
        program(places / "given" / "etcd", content)

        with pytest.raises(LabError, match="UMB825") as caught:
            binaries.find(["etcd"], places / "given")
        assert reason in caught.value.why


def test_a_program_of_this_very_machine_is_taken_and_the_cache_is_where_peers_are_put() -> None:
    header = Path("/proc/self/exe").read_bytes()[:20]
    assert binaries._header_error(header) is None
    import peers

    assert binaries.cache_root() == peers.cache_root()


def test_every_program_of_ours_has_a_main() -> None:
    assert [name for name, module in OWN_PROGRAMS.items() if not callable(import_module(module).main)] == []


def test_a_folder_is_filled_with_scripts_and_links(tmp_path: Path) -> None:
    install_programs(tmp_path, {"kubectl": Path("/opt/kubectl-v1"), "proxy-server": Path("/opt/upstream/proxy-server")})
    assert {path.name for path in tmp_path.iterdir()} == {*OWN_PROGRAMS, "kubectl"}
    assert (tmp_path / "kubectl").readlink() == Path("/opt/kubectl-v1")
    assert stat.S_IMODE((tmp_path / "proxy-server").stat().st_mode) == 0o755
    assert "umbilical.cli.drop_ins.proxy_server" in (tmp_path / "proxy-server").read_text()


def test_a_launcher_runs_with_its_arguments_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    (tmp_path / "said.py").write_text("import sys\ndef main():\n    print(sys.argv[1:])\n    return 7\n")
    script = tmp_path / "program"
    script.write_text(launcher("said"))
    script.chmod(0o755)
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([script, "a b", "$HOME"], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (7, "['a b', '$HOME']\n")


def test_a_python_with_a_long_path_and_blanks_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("it's a long path " * 12)
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    script = tmp_path / "program"
    script.write_text(launcher("umbilical.cli.main", str(folder / "python")))
    script.chmod(0o755)
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([script, "version"], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.startswith("umbilical "), done.stderr


def test_our_own_image_is_there_without_any_binary_and_others_with_all_their_programs() -> None:
    images = lab_images({})
    assert list(images) == [UMBILICAL, TUNNEL]
    assert images[TUNNEL] is images[UMBILICAL]
    assert distinct(images) == [images[UMBILICAL]]
    assert images[UMBILICAL].is_python
    assert {"proxy-server", "proxy-agent", "lab-service", "lab-fetch"} == set(images[UMBILICAL].modules)
    assert KONNECTIVITY not in lab_images({"proxy-server": Path("/x/proxy-server")})
    images = lab_images({name: Path("/x") / name for name in ("proxy-server", "proxy-agent", "etcd")})
    assert set(images) == {UMBILICAL, TUNNEL, KONNECTIVITY, "localhost/etcd:lab"}
    assert not images["localhost/etcd:lab"].is_python
    assert images[UMBILICAL].user[0] != 0
    assert images[KONNECTIVITY].user[0] != 0
    assert images["localhost/etcd:lab"].user == (0, 0)
    found = {name: Path("/x") / name for name in ("etcd", "etcdctl")}
    assert set(lab_images(found)["localhost/etcd:lab"].programs) == {"etcd", "etcdctl"}
    assert set(lab_images({"etcd": Path("/x/etcd")})["localhost/etcd:lab"].programs) == {"etcd"}


@pytest.mark.real("nft")
def test_kube_proxys_image_has_the_packet_filters_program_and_tables_survive_their_journey() -> None:
    image = lab_images({"kube-proxy": Path("/x/kube-proxy")})["localhost/kube-proxy:lab"]
    assert set(image.linked) == {"nft"}
    assert from_json(to_json({image.reference: image})) == {image.reference: image}
    images = lab_images({"etcd": Path("/x/etcd")})
    assert from_json(to_json(images)) == images


def test_a_table_that_cannot_be_read_is_told_of() -> None:
    for content in (b"", b"{}x", b"7", b"[7]", b'[{"reference": "a"}]', b'{"a": 1}'):
        with pytest.raises(LabError, match="UMB839"):
            from_json(content)


class _Health(Handler):
    def do_GET(self) -> None:
        if self.path == "/readyz":
            self.answer(200, b"ok")
        else:
            self.answer(503, b"not yet")


def _fetch(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "umbilical.lab.fetch", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_an_answer_is_printed_or_named_and_the_exit_status_tells() -> None:
    with serving(_Health) as port:
        done = _fetch(f"http://127.0.0.1:{port}/readyz")
        assert (done.returncode, done.stdout) == (0, "ok")
        done = _fetch(f"http://127.0.0.1:{port}/healthz")
        assert (done.returncode, "503" in done.stderr) == (1, True)
    # Port 1 of loopback: nobody listens there.
    done = _fetch("http://127.0.0.1:1/")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
