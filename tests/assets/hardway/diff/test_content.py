"""Which comparison a file gets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umbilical.assets.hardway.diff.content import FORMATTING, compare_content, note_of
from umbilical.assets.hardway.diff.part import HIDDEN, Change, Part


def test_the_same_bytes_have_no_differences() -> None:
    assert compare_content("a.yaml", b"x", b"x") == ()


def test_a_key_says_only_that_it_differs() -> None:
    assert compare_content("tls/a.key", b"one", b"two") == (Part("key", Change.CHANGED, note="key differs"),)
    pem = b"-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"
    assert compare_content("somewhere.txt", b"one", pem)[0].note == "key differs"
    assert compare_content("tls/a.pub", b"one", b"two")[0].note == "public key differs"


def test_text_is_compared_by_lines() -> None:
    (part,) = compare_content("infrastructure/haproxy.cfg", b"a\nb\n", b"a\nc\n")
    assert part.lines == ("@@ -1,2 +1,2 @@", " a", "-b", "+c")


def test_another_formatting_is_told_as_such() -> None:
    assert compare_content("a.json", b'{"a":1}', b'{ "a": 1 }')[0].note == FORMATTING


@pytest.mark.parametrize("path", ["auth/kubeadmin-password", "machine-config/pull-secret"])
def test_secret_texts_are_not_shown(path: str) -> None:
    assert compare_content(path, b"one", b"two")[0].note == HIDDEN


def test_what_is_no_text_is_counted() -> None:
    (part,) = compare_content("image.bin", b"\xff\x00", b"\xff")
    assert part.note == "2 -> 1 bytes, not shown"


@pytest.mark.parametrize("path", ["a.crt", "a.ign", "a.yaml", "etc/kubernetes/kubeconfig"])
def test_what_its_name_does_not_hold_is_compared_as_text(path: str) -> None:
    (part,) = compare_content(path, b"one: [", b"two: [")
    assert part.place == "content"


def test_only_certificates_need_words_beside_their_path() -> None:
    assert note_of("a.yaml", b"a: 1") == note_of("a.crt", b"nonsense") == ""


@given(
    path=st.sampled_from(["a.crt", "a.ign", "a.yaml", "a.key", "a.pub", "a.txt", "kubeconfig"]),
    old=st.none() | st.binary(max_size=40),
    new=st.binary(max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_any_two_contents_can_be_compared(path: str, old: bytes | None, new: bytes) -> None:
    assert bool(compare_content(path, old, new)) == (old != new)
