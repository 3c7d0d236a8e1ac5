"""Our image: what `make image` needs, what the built one has and lacks, and that its programs carry bytes."""

import importlib.util
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from tests.architecture.rooms import REPOSITORY
from tests.support.image_archives import ReadImage, built, built_archive, image_pair, read_image, run_inside
from tests.support.in_process import echo, listening
from tests.support.tunnel_client import receive_exactly

import image
import image_root
import lock
import wheels
from umbilical import __version__
from umbilical.lab.kubelet.archives import ARCHITECTURES
from umbilical.lab.kubelet.python_root import SITE
from umbilical.manifests.objects import DEFAULT_IMAGE, IMAGE_PROGRAMS

SECONDS: Final = 100
BUILD_SECONDS: Final = 900
MAX_BYTES: Final = 60_000_000
"""Compressed, as a registry stores it."""
PYTHON: Final = (3, 11)
ARCHITECTURE: Final = ARCHITECTURES.get(platform.machine(), platform.machine())
# Neither shells nor package managers; their names, wherever they are.
ABSENT: Final = re.compile(
    r"(^|.*/)(ba|da|z|c|k)?sh|.*/(busybox|perl|apt|apt-get|dpkg|dpkg-deb|pip[0-9.]*|pip|ensurepip)"
)
IMPORT: Final = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
FLAGS: Final = slice(4, 8)
"""Of a .pyc file: bit 0 means that it holds a hash, bit 1 that the hash is checked."""


def check(programs: str, *, machine: str = "x86_64", python: tuple[int, int] = PYTHON, user: int = 0) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", programs)
        try:
            image.check_needs(machine, python, user)
        except image_root.ImageRefused as refused:
            return str(refused).splitlines()
    return []


def test_missing_programs_are_named_together_with_their_packages() -> None:
    assert check("/nowhere") == [
        "UMB941 make image needs more programs",
        "  why: not on PATH: mmdebstrap, dpkg-deb, chroot, unshare",
        "  next: apt-get install mmdebstrap dpkg coreutils util-linux",
    ]


def test_what_does_not_fit_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    for name in image.NEEDED:
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    programs = f"{tmp_path}:/usr/bin:/bin"
    assert check(programs) == []
    assert check(programs, python=(3, 13))[0] == "UMB943 make image needs Python 3.11"
    assert check(programs, machine="riscv64")[0] == "UMB943 there is no image for riscv64"
    assert check(programs, user=1000)[0] == "UMB941 make image needs root or user namespaces here"


def test_a_wheel_for_another_python_is_refused_and_another_machine_gets_the_pure_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    other = f"umbilical-{__version__}-cp313-cp313-linux_x86_64.whl"
    (tmp_path / other).touch()
    with pytest.raises(image_root.ImageRefused) as refused:
        image.choose_wheel(tmp_path, "amd64")
    lines = str(refused.value).splitlines()
    assert lines[0] == "UMB943 there is no wheel for Python 3.11 on x86_64"
    assert other in lines[1]
    (tmp_path / other.replace("cp313", "cp311")).touch()
    assert image.choose_wheel(tmp_path, "amd64").name == other.replace("cp313", "cp311")
    pure = tmp_path / f"umbilical-{__version__}-py3-none-any.whl"
    pure.touch()
    assert image.choose_wheel(tmp_path, "arm64") == pure


def test_the_image_gets_the_locked_packages_that_pods_need_and_no_others() -> None:
    lines = image_root.locked(lock.LOCK.read_text(), image_root.PROJECT.read_text())
    names = {line.split("==")[0] for line in lines}
    project = tomllib.loads(image_root.PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    assert {Requirement(text).name.lower() for text in project["dependencies"]} < names
    assert {"lightkube", "dnspython", "cffi"} < names
    others = {Requirement(text).name.lower() for name in ("lab", "hardway") for text in extras[name]}
    assert not names & (others - {lock.OURSELVES})
    assert [line for line in lines if "--hash=sha256:" not in line] == []


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("usr/bin/python3.11", True),
        ("usr/bin/openssl", False),
        ("usr/sbin/update-ca-certificates", False),
        ("usr/lib/python3.11/asyncio/tasks.py", True),
        ("usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so", True),
        ("usr/lib/python3.11/lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so", False),
        ("usr/lib/python3.11/unittest/mock.py", False),
        ("usr/lib/x86_64-linux-gnu/libssl.so.3", True),
        ("usr/lib/x86_64-linux-gnu/gconv/GBK.so", False),
        ("usr/lib64/ld-linux-x86-64.so.2", True),
        ("usr/lib/ld-linux-aarch64.so.1", True),
        ("usr/share/doc/libssl3/copyright", True),
        ("usr/share/doc/libssl3/changelog.gz", False),
        ("usr/share/locale/de/LC_MESSAGES/dpkg.mo", False),
        ("usr/share/man/man1/python3.11.1.gz", False),
    ],
)
def test_of_a_package_only_what_runs_and_its_licence_is_kept(place: str, kept: bool) -> None:
    assert image_root.is_kept(place) == kept


def test_a_tree_with_changes_has_no_revision(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *who, "-C", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SOURCE_DATE_EPOCH", raising=False)
        assert image.origin(tmp_path) == ("", None)
        git("init", "--quiet")
        git("commit", "--quiet", "--allow-empty", "--message=one", "--date=@1700000000")
        commit, seconds = git("log", "-1", "--format=%H %ct").split()
        assert image.origin(tmp_path) == (commit, int(seconds))
        (tmp_path / "new").touch()
        assert image.origin(tmp_path) == ("", int(seconds))
        patch.setenv("SOURCE_DATE_EPOCH", "7")
        assert image.config("amd64", *image.origin(tmp_path)).created == "1970-01-01T00:00:07Z"


def containerfile() -> list[list[str]]:
    """The words of each instruction."""
    text = (REPOSITORY / "Containerfile").read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_containerfile_makes_the_same_image() -> None:
    """It cannot be built without a registry: its tree is made by the same program, and the rest is compared here."""
    steps = containerfile()
    assert [step for step in steps if step[0] == "RUN"][-1][-3:] == ["tools/image.py", "--tree", "/image"]
    last = steps[[step[0] for step in steps].index("FROM", 1) :]
    settings = {step[0]: step[1:] for step in last}
    expected = image.config("amd64", "", None)
    assert settings["COPY"] == ["--from=build", "/image", "/"]
    assert settings["USER"] == [expected.user]
    assert settings["STOPSIGNAL"] == [expected.stop_signal]
    assert json.loads((REPOSITORY / "Containerfile").read_text().rpartition("ENTRYPOINT ")[2]) == [*expected.entrypoint]
    assert settings["ENV"] == list(expected.environment)
    labels = dict(label.split("=", 1) for label in settings["LABEL"])
    assert labels | {"org.opencontainers.image.version": __version__} == expected.labels
    assert labels["org.opencontainers.image.version"] == "${VERSION}"
    assert settings["FROM"] == ["scratch"]


def test_the_containerfile_installs_what_a_build_needs() -> None:
    (installed,) = [step for step in containerfile() if "install" in step]
    # Debian's image has dpkg, coreutils and util-linux.
    assert {"gcc", "make", "mmdebstrap", "python3-dev", "python3-venv"} <= set(installed)


@pytest.fixture(scope="module")
def read() -> ReadImage:
    return read_image(built_archive())


@pytest.fixture(scope="module")
def root(read: ReadImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    read.unpack(folder)
    return folder


@built
def test_the_image_is_small_and_has_its_name_user_signal_and_labels(read: ReadImage) -> None:
    assert built_archive().stat().st_size < MAX_BYTES
    assert read.names == [DEFAULT_IMAGE]
    settings: dict[str, Any] = read.config["config"]
    assert (settings["User"], settings["StopSignal"]) == ("65532:0", "SIGTERM")
    assert settings["Entrypoint"] == ["/usr/bin/umbilical"]
    assert settings["Labels"]["org.opencontainers.image.version"] == __version__
    assert read.config["architecture"] == ARCHITECTURE


@built
def test_every_program_is_there_and_no_other_can_be_started(read: ReadImage) -> None:
    members = {f"/{member.name}": member for member in read.layer}
    assert IMAGE_PROGRAMS.keys() <= members.keys()
    below_bin = {path for path in members if path.startswith(("/usr/bin/", "/usr/sbin/"))}
    assert below_bin == {path for path in IMAGE_PROGRAMS if path.startswith("/usr/bin/")} | {
        "/usr/bin/python3",
        "/usr/bin/python3.11",
    }
    assert [path for path, member in members.items() if ABSENT.fullmatch(path) and path != "/var/lib/dpkg"] == []
    programs = [path for path, member in members.items() if member.isreg() and member.mode & 0o111]
    outside = [path for path in programs if path not in below_bin and ".so" not in path and not path.endswith(".py")]
    assert outside == []


@built
def test_nothing_belongs_to_a_user_or_is_writable_or_privileged(read: ReadImage) -> None:
    members = [member for member in read.layer if not member.issym()]
    assert {(member.uid, member.gid, member.mtime) for member in read.layer} == {(0, 0, 0)}
    assert [member.name for member in members if member.mode & 0o022] == ["tmp"]
    assert [member.name for member in members if member.mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert {member.type for member in read.layer} == {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}


@built
def test_every_link_leads_to_a_file_of_the_image(root: Path) -> None:
    broken = [path for path in root.rglob("*") if path.is_symlink() and not _target(root, path).exists()]
    assert broken == []


def _target(root: Path, path: Path) -> Path:
    link = os.readlink(path)
    return root / link.lstrip("/") if link.startswith("/") else path.parent / link


@built
def test_every_module_has_bytecode_that_is_never_checked(root: Path) -> None:
    sources = [path for path in root.rglob("*.py") if path.parent.name != "bin"]
    assert len(sources) > 1000
    bytecode = {path: Path(importlib.util.cache_from_source(path)) for path in sources}
    # The image's Python is 3.11, whatever runs this test.
    tagged = {path: pyc.with_name(f"{path.stem}.cpython-311.pyc") for path, pyc in bytecode.items()}
    assert [path.relative_to(root) for path, pyc in tagged.items() if not pyc.is_file()] == []
    assert {pyc.read_bytes()[FLAGS] for pyc in tagged.values()} == {b"\x01\0\0\0"}


@built
def test_packages_of_debian_and_of_python_can_be_found_by_scanners(root: Path) -> None:
    records = {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
    assert records == set(image_root.PACKAGES)
    assert "VERSION_CODENAME=bookworm" in (root / "etc/os-release").read_text()
    installed = {path.name.partition("-")[0].lower() for path in (root / SITE).glob("*.dist-info")}
    locked = image_root.locked(lock.LOCK.read_text(), image_root.PROJECT.read_text())
    wanted = {line.split("==")[0].replace("-", "_") for line in locked}
    assert installed == {*wanted, "umbilical"}
    assert not list((root / SITE).glob("*/direct_url.json"))


@built
@pytest.mark.root
def test_every_program_starts_as_the_user_of_the_image_in_a_read_only_root(root: Path) -> None:
    for path in IMAGE_PROGRAMS:
        assert "--" in run_inside(root, path, "--help"), path
    assert ", compiled, " in run_inside(root, "/usr/bin/umbilical", "version")


@built
@pytest.mark.root
def test_every_module_that_a_pod_may_need_can_be_imported_in_the_image(root: Path) -> None:
    package = root / SITE / "umbilical"
    files = (path.relative_to(package.parent) for path in package.rglob("*.py"))
    modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    # They need a whole machine, or are adapters for libraries of programs that use the dialer.
    left_out = {"lab", "hardway", "stage", "__main__", "requests_adapter", "urllib3_pools"}
    chosen = [name for name in modules if not left_out & set(name.split("."))]
    assert len(chosen) > 200
    run_inside(root, "/usr/bin/python3", "-sP", "-c", IMPORT, *sorted(chosen))


@built
@pytest.mark.root
def test_server_and_agent_of_the_image_carry_bytes(root: Path, tmp_path: Path) -> None:
    pair = image_pair(root, tmp_path)
    try:
        pair.start()
        with listening() as endpoint:
            tunnel = pair.frontend().open(endpoint.serve(echo).address)
            tunnel.send(b"through the image")
            assert receive_exactly(tunnel, 17) == b"through the image"
            tunnel.close()
    finally:
        pair.stop()


@pytest.mark.soak
@pytest.mark.timeout(2 * BUILD_SECONDS)
@pytest.mark.real("mmdebstrap", "dpkg-deb", "gcc")
@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="the image's wheel is compiled by Python 3.11")
def test_two_builds_have_one_digest_whatever_the_folder_and_the_umask(tmp_path: Path) -> None:
    written = []
    for name, mask in (("one", 0o022), ("two", 0o077)):
        before = os.umask(mask)
        try:
            wheels.build("compiled", tmp_path / name)
            written.append(image.make(tmp_path / name, tmp_path / name, ARCHITECTURE).read_bytes())
        finally:
            os.umask(before)
    assert written[0] == written[1]
