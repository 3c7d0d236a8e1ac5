"""Python's root file system: which packages, and whether the interpreter in it runs with nothing else around."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.host.errors import HostError
from umbilical.lab.errors import LabError
from umbilical.lab.kubelet import python_root as python_roots
from umbilical.lab.kubelet.python_root import Package, PythonRoot, choose_packages, merged, parse_package, python_root

RECORD = """Package: libpython3.11-minimal
Status: install ok installed
Version: 3.11.2-6
Depends: libc6 (>= 2.33), libssl3:any (>= 3.0.0) | libssl1.1, media-types
Pre-Depends: dpkg
Description: a part
 Depends: not a field
"""


def test_a_record_tells_version_and_first_choices() -> None:
    assert parse_package(RECORD, is_installed=True) == Package(
        "libpython3.11-minimal", "3.11.2-6", is_installed=True, depends=("dpkg", "libc6", "libssl3", "media-types")
    )


def test_what_was_removed_is_not_installed() -> None:
    removed = RECORD.replace("install ok installed", "deinstall ok config-files")
    assert parse_package(removed, is_installed=True) is None
    assert parse_package(removed, is_installed=False) is not None


@given(st.text())
def test_any_text_is_a_record_or_none(text: str) -> None:
    found = parse_package(text, is_installed=False)
    assert found is None or found.name is not None


def test_files_lie_below_usr() -> None:
    assert merged("lib/x86_64-linux-gnu/libc.so.6") == "usr/lib/x86_64-linux-gnu/libc.so.6"
    assert merged("lib64/ld-linux-x86-64.so.2") == "usr/lib64/ld-linux-x86-64.so.2"
    assert merged("usr/lib/python3.11/ssl.py") == "usr/lib/python3.11/ssl.py"
    assert merged("etc/passwd") == "etc/passwd"


def test_a_system_without_debians_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], *_: object) -> str:
        raise HostError("UMB803", f"cannot start {command[0]}", "No such file or directory", "install it")

    monkeypatch.setattr(python_roots, "run", fail)
    with pytest.raises(LabError) as refused:
        python_root(tmp_path)
    assert refused.value.code == "UMB843"
    assert "apt-cache" in refused.value.why
    assert list(tmp_path.iterdir()) == []


def test_a_python_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(command: list[str], *_: object) -> str:
        return f"Package: {command[-1]}\nStatus: install ok installed\nVersion: 3.10\nDepends: python3.10-minimal\n"

    monkeypatch.setattr(python_roots, "run", old)
    with pytest.raises(LabError) as refused:
        choose_packages()
    assert refused.value.code == "UMB843"
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
    assert [(package.name, package.is_installed) for package in packages] == [
        ("python3.13-minimal", False),
        ("libpython3.13-minimal", False),
        ("libpython3.13-stdlib", False),
        ("libc6", True),
        ("libgcc-s1", True),
        ("libssl3t64", True),
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> PythonRoot:
    return python_root(tmp_path_factory.mktemp("cache"))


DEBIAN = pytest.mark.real("dpkg-query", "apt-cache", "chroot")


@pytest.mark.root
@DEBIAN
def test_python_runs_with_nothing_but_this_root(root: PythonRoot) -> None:
    program = "import ssl, sys; print(ssl.create_default_context().verify_mode, sys.prefix, sys.flags.isolated)"
    command = ["chroot", str(root.path), root.interpreter, "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2 /usr 1\n", done.stderr
    assert (root.path / "usr/bin/python3").readlink() == Path(root.interpreter.rpartition("/")[2])


@pytest.mark.root
@DEBIAN
def test_modules_are_compiled_and_documentation_left_out(root: PythonRoot) -> None:
    assert list(root.path.glob("usr/lib/python3.*/__pycache__/ssl.*.pyc"))
    assert not (root.path / "usr/share").exists()
    assert not list(root.path.glob("usr/lib/python3.*/test"))
    assert (root.path / "tmp").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.root
@DEBIAN
def test_a_root_in_the_cache_is_used_again(root: PythonRoot) -> None:
    marker = root.path / "run/marker"
    marker.touch()
    assert python_root(root.path.parent) == root
    assert marker.exists()
