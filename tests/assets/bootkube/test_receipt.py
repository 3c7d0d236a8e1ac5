import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.bootkube.receipt import Receipt, decode_receipt, find_receipt, sha256
from umbilical.assets.errors import AssetError
from umbilical.assets.names import OWN, RECEIPT
from umbilical.ignition.config import read_config

GOOD = Receipt(
    original_sha256=sha256(b"original"),
    script_sha256=sha256(b"script"),
    files=(OWN.library, RECEIPT),
    insertions={"A1": f". {OWN.library}\n"},
    entry='{"path":"/usr/local/bin/bootkube.sh"}',
)


def test_a_receipt_comes_back_as_it_was() -> None:
    assert decode_receipt(GOOD.encode()) == GOOD


def test_a_receipt_knows_its_document() -> None:
    assert GOOD.restores(b"original")
    assert not GOOD.restores(b"original ")


def _without(field: str) -> bytes:
    value = json.loads(GOOD.encode())
    del value[field]
    return json.dumps(value).encode()


def _with(field: str, changed: object) -> bytes:
    return json.dumps({**json.loads(GOOD.encode()), field: changed}).encode()


@pytest.mark.parametrize("field", ["version", "originalSha256", "scriptSha256", "files", "insertions"])
def test_a_receipt_without_a_field_is_refused(field: str) -> None:
    with pytest.raises(AssetError, match="UMB129"):
        decode_receipt(_without(field))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        _with("version", 2),
        _with("files", "all"),
        _with("files", [OWN.library]),
        _with("insertions", {"A1": ""}),
        _with("insertions", {"A1": 5}),
        _with("scriptSha256", None),
    ],
)
def test_a_receipt_that_we_did_not_write_is_refused(content: bytes) -> None:
    with pytest.raises(AssetError, match="UMB129"):
        decode_receipt(content)


def test_a_receipt_cannot_claim_files_of_others() -> None:
    with pytest.raises(AssetError, match="claims /etc/passwd, which no patch adds"):
        decode_receipt(_with("files", [RECEIPT, "/etc/passwd"]))


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_whatever_else_is_in_its_place_is_refused(content: bytes) -> None:
    with pytest.raises(AssetError, match="UMB129"):
        decode_receipt(content)


def test_a_config_without_receipt_is_told_as_not_patched() -> None:
    with pytest.raises(AssetError, match="UMB128 this config is not patched"):
        find_receipt(read_config(b'{"ignition":{"version":"3.2.0"}}'))
