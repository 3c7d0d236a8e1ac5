"""Tar archives: what real writers write is read whole, and whatever is broken ends in one kind of error."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_bundles import tar_of

from umbilical.bootstrap.tar_stream import BLOCK, MAX_EXTENDED_HEADER, TarFault, members

FILES = [
    ("a.txt", b"hello"),
    ("deep/" * 60 + "long-name.log", b"x" * 513),
    ("empty", b""),
    ("exact", b"y" * 512),
    ("ümlaut.json", b"{}"),
]


class OneByte:
    """A stream that gives as little as it may."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, 1))


def read_all(content: bytes) -> list[tuple[str, bytes]]:
    found = []
    for member in members(io.BytesIO(content)):
        parts = []
        while part := member.content.read(100):
            parts.append(part)
        found.append((member.name, b"".join(parts)))
    return found


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_are_read_as_they_were_written(form: int) -> None:
    assert read_all(tar_of(FILES, form)) == FILES


def test_files_of_the_old_format_are_read() -> None:
    files = [("folder/" * 20 + "name", b"text"), ("a", b"b")]
    assert read_all(tar_of(files, tarfile.USTAR_FORMAT)) == files


def test_a_stream_may_split_anywhere() -> None:
    names = [member.name for member in members(OneByte(tar_of(FILES)))]
    assert names == [name for name, _ in FILES]


def test_content_that_nobody_reads_is_passed_over() -> None:
    assert [member.name for member in members(io.BytesIO(tar_of(FILES)))] == [name for name, _ in FILES]


def test_links_devices_and_folders_are_no_files() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo(f"kind-{kind.decode()}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("file"))
    assert [name for name, _ in read_all(buffer.getvalue())] == ["file"]


def test_an_extended_header_past_any_path_is_refused() -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, MAX_EXTENDED_HEADER + 1
    with pytest.raises(TarFault, match="extended header"):
        list(members(io.BytesIO(member.tobuf() + bytes(1 << 20))))


def test_an_archive_that_is_cut_off_gives_what_was_whole() -> None:
    content = tar_of(FILES)
    with pytest.raises(TarFault):
        read_all(content[: BLOCK + 100])
    first = next(members(io.BytesIO(content[: 2 * BLOCK + 30])))
    assert first.content.read(99) == b"hello"


def test_a_damaged_header_is_told() -> None:
    content = bytearray(tar_of(FILES))
    content[3] ^= 0xFF
    with pytest.raises(TarFault, match="checksum"):
        read_all(bytes(content))


@given(st.integers(0, 30 * BLOCK), st.integers(0, 255))
def test_any_single_changed_byte_ends_well_or_in_a_fault(at: int, value: int) -> None:
    content = bytearray(tar_of(FILES))
    content[at % len(content)] = value
    try:
        found = read_all(bytes(content))
    except TarFault:
        return
    assert len(found) <= len(FILES)


@given(st.binary(max_size=3 * BLOCK))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        read_all(content)
    except TarFault:
        pass


@given(st.binary(max_size=600), st.sampled_from([b"x", b"L", b"S", b"g", b"0"]))
def test_no_extended_header_raises_anything_else(content: bytes, kind: bytes) -> None:
    member = tarfile.TarInfo("name")
    member.type, member.size = kind, len(content)
    padded = content + bytes(-len(content) % BLOCK)
    try:
        read_all(member.tobuf() + padded + tar_of([("after", b"text")]))
    except TarFault:
        pass


@given(st.lists(st.tuples(st.text("ab/ü", min_size=1, max_size=150), st.binary(max_size=700)), max_size=4))
def test_whatever_pythons_own_writer_wrote_is_read(files: list[tuple[str, bytes]]) -> None:
    named = [(f"f{name}e", content) for name, content in files]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert read_all(tar_of(named, form)) == named
