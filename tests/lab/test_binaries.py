"""Real programs are found in the order that the user expects, and what cannot run is refused by name."""

import platform
from pathlib import Path

import pytest

from umbilical.lab import binaries
from umbilical.lab.errors import LabError

OTHER_MACHINE = 22 if platform.machine() == "x86_64" else 62


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_a_directory_that_lacks_a_program_leaves_the_others_to_the_cache(places: Path) -> None:
    given = program(places / "given" / "kubectl")
    etcd = cached(places, "etcd-v3.6.8", "etcd")

    assert binaries.find(["etcd", "kubectl"], places / "given") == {"etcd": etcd, "kubectl": given}


def test_the_newest_version_in_the_cache_is_taken_by_number_not_by_letters(places: Path) -> None:
    cached(places, "kubernetes-v1.9.0", "kubectl")
    cached(places, "kubernetes-v1.36.3-rc.1", "kubectl")
    newest = cached(places, "kubernetes-v1.36.3", "kubectl")

    assert binaries.find(["kubectl"]) == {"kubectl": newest}


def test_a_link_is_followed_to_the_file_that_a_node_must_see(places: Path) -> None:
    real = program(places / "elsewhere" / "kubectl-1.36")
    (places / "path").mkdir()
    (places / "path" / "kubectl").symlink_to(real)

    assert binaries.find(["kubectl"]) == {"kubectl": real}


@pytest.mark.parametrize("name", binaries.KONNECTIVITY)
def test_a_program_on_path_never_passes_for_upstream_s_of_the_same_name(places: Path, name: str) -> None:
    program(places / "path" / name)

    with pytest.raises(LabError) as caught:
        binaries.find([name])
    assert caught.value.code == "UMB824"
    assert "PATH" not in caught.value.why
    assert "make peers GROUP=konnectivity" in caught.value.remedy

    built = cached(places, "konnectivity-v0.36.0", name)
    assert binaries.find([name]) == {name: built}


def test_everything_that_is_missing_is_named_at_once_with_both_remedies(places: Path) -> None:
    program(places / "path" / "kubectl")

    with pytest.raises(LabError) as caught:
        binaries.find(binaries.CONTROL_PLANE, places / "given")
    assert caught.value.code == "UMB824"
    assert caught.value.what.endswith("etcd, kube-apiserver")
    assert str(places / "given") in caught.value.why
    assert "make peers GROUP=kubernetes" in caught.value.remedy
    assert "--bin-dir" in caught.value.remedy


def test_missing_programs_of_two_groups_name_both_commands() -> None:
    with pytest.raises(LabError) as caught:
        binaries.find(["etcd", "proxy-agent"])
    assert "GROUP=kubernetes` and `make peers GROUP=konnectivity" in caught.value.remedy


def test_a_file_that_is_not_executable_is_refused_by_name(places: Path) -> None:
    path = program(places / "given" / "etcd", mode=0o644)

    with pytest.raises(LabError) as caught:
        binaries.find(["etcd"], places / "given")
    assert caught.value.code == "UMB825"
    assert str(path) in caught.value.what
    assert "not executable" in caught.value.why


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf(OTHER_MACHINE), "another architecture"),
        (elf(OTHER_MACHINE, byte_order=2), "another architecture"),
        (b"\xcf\xfa\xed\xfe" + bytes(40), "neither a Linux program"),
        (b"\x7fELF\x02", "neither a Linux program"),
        (b"", "neither a Linux program"),
    ],
)
def test_a_program_of_another_machine_is_refused(places: Path, content: bytes, reason: str) -> None:
    program(places / "given" / "etcd", content)

    with pytest.raises(LabError, match="UMB825") as caught:
        binaries.find(["etcd"], places / "given")
    assert reason in caught.value.why


def test_a_directory_in_a_program_s_place_is_refused(places: Path) -> None:
    (places / "given" / "etcd").mkdir(parents=True)

    with pytest.raises(LabError, match="no regular file"):
        binaries.find(["etcd"], places / "given")


def test_a_program_of_this_very_machine_is_taken() -> None:
    header = Path("/proc/self/exe").read_bytes()[:20]

    assert binaries._fault_of_header(header) is None


def test_the_cache_is_where_the_builder_of_peers_puts_them() -> None:
    import peers

    assert binaries.cache_root() == peers.cache_root()
