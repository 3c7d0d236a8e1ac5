"""Log bundles: archives, directories and copies of records are read alike, and none of them is trusted."""

import gzip
import io
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_bundles import ROOT, BundleBuilder, good_record, tar_of

from umbilical.bootstrap.analyze import log_bundle
from umbilical.bootstrap.analyze.log_bundle import MAX_NOTES, LogBundle, inner_path, open_bundle
from umbilical.bootstrap.analyze.tar_stream import BLOCK, MAX_EXTENDED_HEADER, TarFault, members
from umbilical.fault import BootstrapError


def contents(bundle: LogBundle) -> dict[str, bytes]:
    found = {}
    for file in bundle.files():
        stream, parts = file.open(), []
        while part := stream.read(1000):
            parts.append(part)
        found[file.path] = b"".join(parts)
    return found


def test_an_archive_its_directory_and_a_plain_tar_give_the_same_files(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record())
    plain = tmp_path / "plain.tar"
    plain.write_bytes(gzip.decompress(builder.packed()))
    for path in (builder.archive(tmp_path), builder.unpack(tmp_path), plain):
        bundle = open_bundle(path)
        assert contents(bundle) == builder.files
        assert bundle.notes == []


def test_the_folder_above_a_bundle_may_be_given(tmp_path: Path) -> None:
    BundleBuilder(good_record()).unpack(tmp_path)
    assert "bootstrap/services/bootkube.json" in contents(open_bundle(tmp_path))


def test_the_newest_archive_of_an_install_directory_is_taken(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record())
    for stamp in ("20261115150000", "20261115170000", "20261115160000"):
        builder.archive(tmp_path, f"log-bundle-{stamp}.tar.gz", f"log-bundle-{stamp}")
    assert open_bundle(tmp_path).path.name == "log-bundle-20261115170000.tar.gz"


def test_a_single_record_is_a_bundle_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "bootkube.json"
    path.write_bytes(good_record().content())
    assert contents(open_bundle(path)) == {"bootkube.json": good_record().content()}


def test_the_time_of_the_gathering_is_in_the_folders_name(tmp_path: Path) -> None:
    bundle = open_bundle(BundleBuilder(good_record()).archive(tmp_path, "some-name.tar.gz"))
    list(bundle.files())
    assert bundle.gathered_at == datetime(2026, 11, 15, 15, 0, tzinfo=UTC)
    none = open_bundle(BundleBuilder().archive(tmp_path, "log-bundle-99999999999999.tar.gz", "x"))
    list(none.files())
    assert none.gathered_at is None


def test_a_packed_journal_is_unpacked_on_the_way(tmp_path: Path) -> None:
    builder = BundleBuilder().log("bootstrap/journals/journal.log.gz", "text")
    assert contents(open_bundle(builder.archive(tmp_path)))["bootstrap/journals/journal.log.gz"] == b"text\n"


def test_an_archive_that_is_cut_off_gives_what_was_whole_and_a_note(tmp_path: Path) -> None:
    packed = BundleBuilder(good_record()).packed()
    path = tmp_path / "cut.tar.gz"
    for length in range(2, len(packed), 37):
        path.write_bytes(packed[:length])
        bundle = open_bundle(path)
        names = [file.path for file in bundle.files()]
        assert names == list(BundleBuilder(good_record()).files)[: len(names)]
        assert len(bundle.notes) == 1


def test_the_folder_that_a_bundle_was_packed_as_is_stripped_and_a_name_that_leads_outside_left_out() -> None:
    for name, path in (
        (f"{ROOT}/./bootstrap/services/bootkube.json", "bootstrap/services/bootkube.json"),
        (f"{ROOT}/log-bundle-bootstrap/bootstrap/services/a.json", "bootstrap/services/a.json"),
        ("/absolute/resources/pods.json", "resources/pods.json"),
        (f"{ROOT}/gather.log", "gather.log"),
        (f"{ROOT}/rendered-assets/openshift/bootstrap/x", "rendered-assets/openshift/bootstrap/x"),
        ("openshift/bootkube.json", "openshift/bootkube.json"),
        *((outside, None) for outside in ("../../etc/passwd", "log-bundle/../../x", "..", "", "/")),
    ):
        assert inner_path(name) == path


def test_names_that_lead_outside_are_noted_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(gzip.compress(tar_of([(f"../../../evil-{number}", b"x") for number in range(50)])))
    bundle = open_bundle(path)
    assert list(bundle.files()) == []
    assert len(bundle.notes) == MAX_NOTES
    assert sorted(os.listdir(tmp_path)) == ["evil.tar.gz"]


def test_a_bundle_that_unpacks_to_too_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bundle, "MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(tar_of([("a.log", bytes(8 << 20)), ("b.log", b"never read")])))
    bundle = open_bundle(path)
    assert [file.path for file in bundle.files()] == ["a.log"]
    assert "unpacked" in bundle.notes[0]


def test_a_packed_file_inside_counts_by_what_it_unpacks_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bundle, "MAX_BYTES", 1 << 20)
    builder = BundleBuilder()
    builder.files["bootstrap/journals/journal.log.gz"] = gzip.compress(bytes(8 << 20))
    files = open_bundle(builder.archive(tmp_path)).files()
    stream = next(file.open() for file in files if file.path.endswith("gz"))
    with pytest.raises(log_bundle.READ_ERRORS, match="unpacked"):
        list(iter(lambda: stream.read(1 << 16), b""))


def test_too_many_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_bundle, "MAX_FILES", 3)
    path = tmp_path / "many.tar.gz"
    path.write_bytes(gzip.compress(tar_of([(f"{number}.log", b"") for number in range(9)])))
    bundle = open_bundle(path)
    assert len(list(bundle.files())) == 3
    assert "more than 3 files" in bundle.notes[0]


def test_links_and_pipes_of_a_directory_are_not_opened(tmp_path: Path) -> None:
    folder = BundleBuilder(good_record()).unpack(tmp_path) / "bootstrap" / "journals"
    folder.mkdir()
    (folder / "bootkube.log").symlink_to("/etc/passwd")
    os.mkfifo(folder / "kubelet.log")
    refused = 0
    for file in open_bundle(tmp_path).files():
        if "journals" in file.path:
            with pytest.raises(OSError):
                file.open()
            refused += 1
    assert refused == 2


def test_a_file_that_is_not_there_cannot_be_read_and_any_other_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(BootstrapError, match="UMB180"):
        open_bundle(path)
    for content in (b"", b"hello", b"PK\x03\x04", b"{}"):
        path.write_bytes(content)
        with pytest.raises(BootstrapError, match="UMB181"):
            open_bundle(path)


@given(st.binary(max_size=2000))
def test_no_archive_raises_while_it_is_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.tar.gz"
    for octets in (gzip.compress(content), b"\x1f\x8b" + content):
        path.write_bytes(octets)
        assert not any(file.path.startswith(("/", "../")) for file in open_bundle(path).files())


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_damaged_archive_raises_while_read(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    octets = bytearray(BundleBuilder(good_record()).packed())
    octets[2 + at % (len(octets) - 2)] = value
    path = tmp_path_factory.mktemp("fuzz") / "x.tar.gz"
    path.write_bytes(octets)
    for file in open_bundle(path).files():
        stream = file.open()
        try:
            while stream.read(4096):
                pass
        except log_bundle.READ_ERRORS:
            pass


def test_pythons_reader_agrees_about_what_is_in_it(tmp_path: Path) -> None:
    path = BundleBuilder(good_record()).archive(tmp_path)
    with tarfile.open(path) as archive:
        names = [member.name.removeprefix(f"{ROOT}/") for member in archive.getmembers()]
    assert [file.path for file in open_bundle(path).files()] == names


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


def test_files_of_every_format_are_read_as_they_were_written() -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert read_all(tar_of(FILES, form)) == FILES
    old = [("folder/" * 20 + "name", b"text"), ("a", b"b")]
    assert read_all(tar_of(old, tarfile.USTAR_FORMAT)) == old


def test_a_stream_may_split_anywhere_and_content_that_nobody_reads_is_passed_over() -> None:
    for stream in (OneByte(tar_of(FILES)), io.BytesIO(tar_of(FILES))):
        assert [member.name for member in members(stream)] == [name for name, _ in FILES]


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
