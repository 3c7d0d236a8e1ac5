"""Archives of the lab's images: the same bytes when made again, and our own programs run from theirs."""

import platform
import signal
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.image_archives import read_image
from tests.support.labs import wait_until

from umbilical.fault import HostError, LabError
from umbilical.lab.images import PYTHON_PROGRAMS, UNPRIVILEGED, Image, lab_images, shell_image
from umbilical.lab.kubelet import archives, containerd
from umbilical.lab.kubelet import python_root as python_roots
from umbilical.lab.kubelet.archives import (
    cache_directory,
    content_key,
    image_archive,
    library_entries,
    library_paths,
    program_entries,
)
from umbilical.lab.kubelet.image_format import ImageConfig, LayerEntry, read_names, tree_entries, write_archive
from umbilical.lab.kubelet.python_root import Package, PythonRoot, choose_packages, merged, parse_package, python_root

REFERENCE = "localhost/x:lab"
CONFIG = ImageConfig("amd64", user="65532:0", entrypoint=("/usr/bin/x",), environment=("PATH=/usr/bin",))


def test_an_archive_holds_manifest_config_and_one_layer(tmp_path: Path) -> None:
    program = tmp_path / "x"
    program.write_bytes(b"binary")
    write_archive(tmp_path / "x.tar", [REFERENCE], program_entries({"x": program, "y": b"other"}), CONFIG)
    image = read_image(tmp_path / "x.tar")
    layer = image.layer
    assert image.names == [REFERENCE]
    assert image.config["os"] == "linux"
    assert image.config["architecture"] == "amd64"
    assert image.config["config"] == {"User": "65532:0", "Entrypoint": ["/usr/bin/x"], "Env": ["PATH=/usr/bin"]}
    assert [member.name for member in layer] == ["bin", "tmp", "usr", "usr/bin", "usr/bin/x", "usr/bin/y"]
    assert layer.getmember("bin").linkname == "usr/bin"
    assert [oct(member.mode) for member in layer][1:] == ["0o1777", "0o755", "0o755", "0o755", "0o755"]
    stored = layer.extractfile("usr/bin/x")
    assert stored is not None
    assert stored.read() == b"binary"


def test_an_archive_names_the_arguments_that_a_pod_may_replace(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar", [REFERENCE], [], replace(CONFIG, command=("pause",)))
    config = read_image(tmp_path / "x.tar").config["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/usr/bin/x"], ["pause"])


def test_an_archive_may_be_compressed_and_carry_labels_a_signal_and_a_time(tmp_path: Path) -> None:
    config = replace(CONFIG, labels={"version": "1"}, stop_signal="SIGTERM", created="2026-11-19T00:00:00Z")
    entries = program_entries({"x": b"zeros" * 1000})
    digest = write_archive(tmp_path / "small.tar", [REFERENCE], entries, config, is_compressed=True)
    write_archive(tmp_path / "large.tar", [REFERENCE], entries, config)
    small, large = read_image(tmp_path / "small.tar"), read_image(tmp_path / "large.tar")
    assert f"blobs/{digest.replace(':', '/')}" in small.contents
    assert (tmp_path / "small.tar").stat().st_size < (tmp_path / "large.tar").stat().st_size
    assert small.layer.getnames() == large.layer.getnames()
    assert small.config == large.config
    assert small.config["config"]["Labels"] == {"version": "1"}
    assert (small.config["config"]["StopSignal"], small.config["created"]) == ("SIGTERM", "2026-11-19T00:00:00Z")


def test_the_names_of_an_archive_can_be_read_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar", [REFERENCE, "localhost/y:lab"], [], CONFIG)
    assert read_names(tmp_path / "x.tar") == [REFERENCE, "localhost/y:lab"]
    (tmp_path / "broken.tar").write_bytes(b"no archive")
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    for name in ("broken.tar", "other.tar", "missing.tar"):
        with pytest.raises(LabError, match="UMB849"):
            read_names(tmp_path / name)


def test_the_same_entries_give_the_same_bytes_and_nothing_of_this_machine(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        source = tmp_path / name.removesuffix(".tar")
        source.write_bytes(b"binary")
        source.chmod(0o700)
        write_archive(tmp_path / name, [REFERENCE], program_entries({"x": source}), CONFIG)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    layer = read_image(tmp_path / "a.tar").layer
    assert {(member.uid, member.gid, member.mtime, member.uname) for member in layer} == {(0, 0, 0, "")}


def test_a_tree_is_taken_over_with_links_and_modes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/module").write_bytes(b"content")
    (root / "usr/lib/module").chmod(0o640)
    entries = list(tree_entries(root))
    links = {"lib": "usr/lib", "usr": None, "usr/lib": None, "usr/lib/module": None}
    assert [(entry.path, entry.link) for entry in entries] == list(links.items())
    write_archive(tmp_path / "x.tar", [REFERENCE], entries, CONFIG)
    layer = read_image(tmp_path / "x.tar").layer
    assert layer.getmember("lib").linkname == "usr/lib"
    assert layer.getmember("usr/lib/module").mode == 0o640


def test_a_failed_archive_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "x.tar", [REFERENCE], program_entries({"x": tmp_path / "gone"}), CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_a_key_changes_with_content_name_mode_and_config(tmp_path: Path) -> None:
    entries = [LayerEntry("usr/bin/x", b"one")]
    keys = {
        content_key(entries, CONFIG),
        content_key([LayerEntry("usr/bin/x", b"two")], CONFIG),
        content_key([LayerEntry("usr/bin/y", b"one")], CONFIG),
        content_key([LayerEntry("usr/bin/x", b"one", 0o644)], CONFIG),
        content_key([LayerEntry("usr/bin/x", link="one")], CONFIG),
        content_key(entries, ImageConfig("arm64")),
    }
    assert len(keys) == 6
    (tmp_path / "x").write_bytes(b"one")
    assert content_key([LayerEntry("x", tmp_path / "x")], CONFIG) == content_key([LayerEntry("x", b"one")], CONFIG)


def test_it_runs_here_and_sleeps_until_it_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(containerd.pause_program())
    program.chmod(0o755)
    with subprocess.Popen([program]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        wait_until(lambda: _state(process.pid) == "S")  # it sleeps, and does not spin
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_is_an_executable_of_a_machine_that_is_known() -> None:
    for machine, number in (("x86_64", 62), ("aarch64", 183)):
        content = containerd.pause_program(machine)
        assert content.startswith(b"\x7fELF\x02\x01")
        assert int.from_bytes(content[18:20], "little") == number
        entry = int.from_bytes(content[24:32], "little") & 0xFFF
        assert 0 < len(content) - entry <= 64, "the entry point is where the instructions begin"
    assert containerd.pause_program() == containerd.pause_program(platform.machine())
    with pytest.raises(LabError, match=r"(?s)UMB845.*why: .*x86_64 and aarch64"):
        containerd.pause_program("vax")


LISTING = """\
\tlinux-vdso.so.1 (0x00007fb713608000)
\tlibnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007fb713514000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fb7132f8000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007fb71360a000)
"""


def test_libraries_are_those_that_the_loader_lists() -> None:
    folder = "/lib/x86_64-linux-gnu"
    assert library_paths(LISTING) == [
        f"{folder}/libnftables.so.1",
        f"{folder}/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]
    assert library_paths("\tstatically linked\n") == []


@pytest.mark.root
@pytest.mark.real("nft", "ldd", "chroot")
def test_a_program_runs_with_them_in_an_otherwise_empty_root(tmp_path: Path) -> None:
    program = Path("/usr/sbin/nft")
    for entry in library_entries([program]):
        target = tmp_path / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(entry.source, Path)
        target.write_bytes(entry.source.read_bytes())
        target.chmod(entry.mode)
    (tmp_path / "nft").write_bytes(program.read_bytes())
    (tmp_path / "nft").chmod(0o755)
    done = subprocess.run(["chroot", tmp_path, "/nft", "--version"], capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"nftables ")


def test_the_name_of_an_archive_changes_with_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "etcd"
    names = []
    for content in (b"one", b"two", b"one"):
        program.write_bytes(content)
        names.append(image_archive(lab_images_of(program), tmp_path / "cache").name)
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("etcd-lab-")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/umbilical/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache/umbilical/images"


def test_an_image_has_all_its_names_and_the_program_that_runs_unasked(tmp_path: Path) -> None:
    program = tmp_path / "coredns"
    program.write_bytes(b"program")
    image = Image("localhost/a:lab", {"coredns": program}, aliases=("localhost/b:lab",), entrypoint="coredns")
    archive = image_archive(image, tmp_path / "cache")
    assert archive.name != image_archive(replace(image, aliases=()), tmp_path / "cache").name
    archive.write(tmp_path / archive.name)
    found = read_image(tmp_path / archive.name)
    assert found.names == ["localhost/a:lab", "localhost/b:lab"]
    assert found.config["config"]["Entrypoint"] == ["/usr/bin/coredns"]


@pytest.mark.real("nft", "ldd")
def test_a_program_that_is_not_static_comes_with_its_libraries(tmp_path: Path) -> None:
    image = Image("localhost/kube-proxy:lab", linked={"nft": Path("/usr/sbin/nft")})
    archive = image_archive(image, tmp_path / "cache")
    archive.write(tmp_path / archive.name)
    names = read_image(tmp_path / archive.name).layer.getnames()
    assert "usr/bin/nft" in names
    assert any(name.endswith("libc.so.6") for name in names)


@pytest.mark.root
@pytest.mark.real("ldd", "chroot", "curl")
def test_the_image_with_a_shell_has_what_one_looks_around_with(tmp_path: Path) -> None:
    archive = image_archive(shell_image(), tmp_path / "cache")
    archive.write(tmp_path / archive.name)
    image = read_image(tmp_path / archive.name)
    assert image.names == ["localhost/shell:lab"]
    image.unpack(tmp_path / "root")
    script = "set -e; for name in ip ps ss; do command -v $name; done; curl --version | head -n 1"
    command = ["chroot", str(tmp_path / "root"), "/bin/sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[:3] == ["/usr/bin/ip", "/usr/bin/ps", "/usr/bin/ss"], done.stderr
    assert done.stdout.splitlines()[3].startswith("curl ")


def test_the_names_of_imported_images_are_read() -> None:
    text = "unpacking localhost/a:1 (sha256:ab)...done\nunpacking docker.io/library/b:latest (sha256:cd)...done\n"
    assert containerd.parse_import(text) == ["localhost/a:1", "docker.io/library/b:latest"]
    assert containerd.parse_import("ctr: unrecognized image format") == []


def lab_images_of(program: Path) -> Image:
    return lab_images({"etcd": program})["localhost/etcd:lab"]


@pytest.mark.root
@pytest.mark.real("dpkg-query", "apt-cache", "chroot")
def test_our_programs_run_from_their_image_as_nobody_in_particular(root: PythonRoot, tmp_path: Path) -> None:
    image = Image("localhost/umbilical:lab", modules=PYTHON_PROGRAMS, user=UNPRIVILEGED)
    archive = image_archive(image, root.path.parent)
    archive.write(tmp_path / archive.name)
    unpacked = tmp_path / "root"
    read_image(tmp_path / archive.name).unpack(unpacked)
    tmp_path.chmod(0o755)
    for program in PYTHON_PROGRAMS:
        command = ["chroot", "--userspec=65532:0", str(unpacked), f"/usr/bin/{program}", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "--" in done.stdout
    assert list(unpacked.glob("usr/lib/python3/dist-packages/umbilical/tunnel/__pycache__/*.pyc"))


def test_only_sources_are_taken_over() -> None:
    entries = list(archives._own_entries({"x": "umbilical.x"}, "/usr/bin/python3.11"))
    paths = {entry.path for entry in entries}
    assert "usr/lib/python3/dist-packages/umbilical/cli/drop_ins/proxy_agent.py" in paths
    assert "usr/lib/python3/dist-packages/h11/__init__.py" in paths
    assert not any(path.endswith((".so", ".pyc")) for path in paths)
    (script,) = [entry for entry in entries if entry.path == "usr/bin/x"]
    assert script.source == b"#!/usr/bin/python3.11 -I\nimport sys\nfrom umbilical.x import main\nsys.exit(main())\n"


RECORD = """Package: libpython3.11-minimal
Status: install ok installed
Version: 3.11.2-6
Depends: libc6 (>= 2.33), libssl3:any (>= 3.0.0) | libssl1.1, media-types
Pre-Depends: dpkg
Description: a part
 Depends: not a field
"""


def test_a_record_tells_version_and_first_choices_of_what_is_installed() -> None:
    assert parse_package(RECORD, is_installed=True) == Package(
        "libpython3.11-minimal", "3.11.2-6", is_installed=True, depends=("dpkg", "libc6", "libssl3", "media-types")
    )
    removed = RECORD.replace("install ok installed", "deinstall ok config-files")
    assert parse_package(removed, is_installed=True) is None
    assert parse_package(removed, is_installed=False) is not None
    assert merged("lib/x86_64-linux-gnu/libc.so.6") == "usr/lib/x86_64-linux-gnu/libc.so.6"
    assert merged("lib64/ld-linux-x86-64.so.2") == "usr/lib64/ld-linux-x86-64.so.2"
    assert merged("usr/lib/python3.11/ssl.py") == "usr/lib/python3.11/ssl.py"
    assert merged("etc/passwd") == "etc/passwd"


@given(st.text())
def test_any_text_is_a_record_or_none(text: str) -> None:
    found = parse_package(text, is_installed=False)
    assert found is None or found.name is not None


def test_a_system_without_a_fitting_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], *_: object) -> str:
        raise HostError("UMB803", f"cannot start {command[0]}", "No such file or directory", "install it")

    monkeypatch.setattr(python_roots, "run", fail)
    with pytest.raises(LabError, match=r"(?s)UMB843.*why: .*apt-cache"):
        python_root(tmp_path)
    assert list(tmp_path.iterdir()) == []

    def old(command: list[str], *_: object) -> str:
        return f"Package: {command[-1]}\nStatus: install ok installed\nVersion: 3.10\nDepends: python3.10-minimal\n"

    monkeypatch.setattr(python_roots, "run", old)
    with pytest.raises(LabError, match="UMB843") as refused:
        choose_packages()
    assert "3.10" in refused.value.why


def test_python_comes_whole_from_this_machine_or_whole_from_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(command: list[str], *_: object) -> str:
        name = command[-1]
        if command[0] == "dpkg-query" and name.endswith("-stdlib"):
            raise HostError("UMB804", "dpkg-query failed", f"package {name} is not installed", "install it")
        version = "3.13.5-1" if command[0] == "dpkg-query" else "3.13.5-2"
        depends = {"python3-minimal": "python3.13-minimal", "libc6": "libgcc-s1"}.get(
            name, "libc6, libssl3t64, mailcap"
        )
        return f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nDepends: {depends}\n"

    monkeypatch.setattr(python_roots, "run", half)
    version, packages = choose_packages()
    assert version == "3.13"
    from_mirror = ["python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib"]
    assert [package.name for package in packages] == [*from_mirror, "libc6", "libgcc-s1", "libssl3t64"]
    assert [package.is_installed for package in packages] == [False] * 3 + [True] * 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> PythonRoot:
    return python_root(tmp_path_factory.mktemp("cache"))


DEBIAN = pytest.mark.real("dpkg-query", "apt-cache", "chroot")


@pytest.mark.root
@DEBIAN
def test_python_runs_with_nothing_but_this_root_which_is_used_again(root: PythonRoot) -> None:
    program = "import ssl, sys; print(ssl.create_default_context().verify_mode, sys.prefix, sys.flags.isolated)"
    command = ["chroot", str(root.path), root.interpreter, "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2 /usr 1\n", done.stderr
    assert (root.path / "usr/bin/python3").readlink() == Path(root.interpreter.rpartition("/")[2])
    assert list(root.path.glob("usr/lib/python3.*/__pycache__/ssl.*.pyc"))
    assert not (root.path / "usr/share").exists()
    assert not list(root.path.glob("usr/lib/python3.*/test"))
    assert (root.path / "tmp").stat().st_mode & 0o7777 == 0o1777
    marker = root.path / "run/marker"
    marker.touch()
    assert python_root(root.path.parent) == root
    assert marker.exists()
