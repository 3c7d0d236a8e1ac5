"""The installer's root authority from its state file."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.pki.authority import Authority
from umbilical.pki.errors import PkiError
from umbilical.pki.install_state import root_authority_from_state
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType

ROOT = Authority.create("root-ca", datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=3650), KeyType.ECDSA_P256).pair
SECRET = "dG9wLXNlY3JldA=="


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def state(fields: Any) -> bytes:
    return json.dumps({"*installconfig.ClusterID": {"UUID": "u"}, "*tls.RootCA": fields}).encode()


def test_the_pair_is_taken_out() -> None:
    fields = {"CertRaw": encoded(ROOT.certificate), "KeyRaw": encoded(ROOT.key), "FileList": []}
    found = root_authority_from_state(state(fields))
    assert found == KeyPair(ROOT.certificate, ROOT.key)
    assert Authority.load(found).pair == ROOT


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", r"no \*tls.RootCA"),
        (state("text"), r"no \*tls.RootCA"),
        (state({"KeyRaw": SECRET}), "no CertRaw"),
        (state({"CertRaw": encoded(ROOT.certificate)}), "no KeyRaw"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": 7}), "no KeyRaw"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": "ü"}), "not base64"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": SECRET}), "not PEM"),
    ],
)
def test_what_is_no_such_state_is_refused_without_repeating_it(content: bytes, why: str) -> None:
    with pytest.raises(PkiError, match=why) as refused:
        root_authority_from_state(content)
    assert refused.value.code == "UMB153"
    assert SECRET not in str(refused.value)
    assert "top-secret" not in str(refused.value)


@given(
    st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5)
)
def test_any_fields_are_a_pair_or_a_refusal(fields: Any) -> None:
    with pytest.raises(PkiError):
        root_authority_from_state(state(fields))


@given(st.binary(max_size=100))
def test_any_bytes_are_refused_in_our_own_words(content: bytes) -> None:
    with pytest.raises(PkiError, match="UMB153"):
        root_authority_from_state(content)
