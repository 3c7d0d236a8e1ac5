"""gzip with a bound and without a clock, and the hashes of verification.hash."""

import gzip as standard_gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.ignition import payload
from umbilical.ignition.errors import IgnitionError


@given(st.binary(max_size=500))
def test_gzip_is_read_by_the_standard_library_and_the_other_way_round(content: bytes) -> None:
    assert standard_gzip.decompress(payload.gzip(content)) == content
    assert payload.gunzip(standard_gzip.compress(content)) == content


def test_gzip_of_the_same_content_has_no_time_and_no_name_in_it() -> None:
    assert payload.gzip(b"x") == payload.gzip(b"x")
    assert payload.gzip(b"x")[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


def test_several_members_are_one_content() -> None:
    assert payload.gunzip(payload.gzip(b"one ") + payload.gzip(b"two")) == b"one two"


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"plain",
        payload.gzip(b"content")[:-1],
        payload.gzip(b"content")[:-8] + bytes(8),
        payload.gzip(b"content") + b"trailing",
        zlib.compress(b"zlib is not gzip"),
    ],
)
def test_a_broken_payload_is_refused(broken: bytes) -> None:
    with pytest.raises(IgnitionError, match="UMB142"):
        payload.gunzip(broken)


def test_a_payload_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_FILE_BYTES", 1000)
    assert payload.gunzip(payload.gzip(bytes(1000))) == bytes(1000)
    for bomb in (payload.gzip(bytes(1001)), payload.gzip(bytes(600)) * 2):
        with pytest.raises(IgnitionError, match="grows past 1000 bytes"):
            payload.gunzip(bomb)


@given(st.binary(max_size=60))
def test_any_bytes_are_decompressed_or_refused(content: bytes) -> None:
    for candidate in (content, b"\x1f\x8b\x08" + content):
        with suppress(IgnitionError):
            assert payload.gunzip(candidate) == standard_gzip.decompress(candidate)


def test_a_hash_is_of_the_kind_that_was_there() -> None:
    assert (
        payload.hash_like("sha256-00", b"")
        == f"sha256-{'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}"
    )
    assert len(payload.hash_like("sha512-", b"")) == len("sha512-") + 128


@pytest.mark.parametrize("pattern", ["", "md5-00", "SHA256-00", "sha1"])
def test_a_hash_of_another_kind_cannot_be_checked(pattern: str) -> None:
    with pytest.raises(IgnitionError, match="is not known"):
        payload.hash_like(pattern, b"")
