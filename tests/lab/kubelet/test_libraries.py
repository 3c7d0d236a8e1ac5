"""The libraries of a program that is not static: found where its loader looks, and enough to run it elsewhere."""

import subprocess
from pathlib import Path

import pytest

from umbilical.lab.kubelet.libraries import library_entries, places

LISTING = """\
\tlinux-vdso.so.1 (0x00007fb713608000)
\tlibnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007fb713514000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fb7132f8000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007fb71360a000)
"""


def test_the_kernels_own_library_is_no_file() -> None:
    folder = "/lib/x86_64-linux-gnu"
    assert places(LISTING) == [f"{folder}/libnftables.so.1", f"{folder}/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]


def test_a_static_program_has_none() -> None:
    assert places("\tstatically linked\n") == []


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
