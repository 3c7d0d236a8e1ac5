"""What an installer leaves behind: its directory and its state."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority

from umbilical.bootstrap.install_files import root_authority_from_state
from umbilical.fault import PkiError
from umbilical.pki.authority import Authority
from umbilical.pki.directory import read_certificate_file, read_directory
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import TunnelRole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki", addresses=(ADDRESS, "api.example.com"))


def test_a_whole_directory_has_no_trouble(folder: Path) -> None:
    facts = read_directory(folder, TunnelRole, [ADDRESS])
    assert facts.folder_mode == 0o700
    assert [one.common_name for one in facts.authority.certificates] == ["konnectivity-signer"]
    assert (facts.authority_key.mode, facts.authority_key.refusal) == (0o600, None)
    assert list(facts.leaves) == list(TunnelRole)
    assert all(leaf.is_loadable and leaf.chain is None and leaf.key.mode == 0o600 for leaf in facts.leaves.values())
    assert facts.connections == {ADDRESS: None}


def test_only_what_is_asked_for_is_looked_at_and_agents_dial_the_first_name(folder: Path) -> None:
    assert read_directory(folder, TunnelRole, []).connections == {"api.example.com": None}
    facts = read_directory(folder, [TunnelRole.AGENT], [ADDRESS])
    assert list(facts.leaves) == [TunnelRole.AGENT]
    assert facts.connections == {}
    found = read_certificate_file(folder / "server.key")
    assert (found.certificates, found.trouble, found.exists) == ((), "it holds a private key, not a certificate", True)


def test_missing_files_are_facts(tmp_path: Path) -> None:
    facts = read_directory(tmp_path, [TunnelRole.SERVER, TunnelRole.AGENT], [])
    server = facts.leaves[TunnelRole.SERVER]
    assert (server.certificate, server.file.trouble, server.key.mode) == (None, "No such file or directory", None)
    assert (facts.authority.certificates, facts.authority_key.mode) == ((), None)
    assert not server.file.exists


def test_the_issuer_is_found_by_its_identifier_where_names_are_alike(tmp_path: Path) -> None:
    old, new = new_authority(), new_authority()
    files = {**make_files(old), "ca.crt": new.bundle + old.bundle}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    facts = read_directory(tmp_path, [TunnelRole.AGENT], [])
    leaf = facts.leaves[TunnelRole.AGENT].certificate
    assert leaf is not None
    assert facts.issuer_of(leaf) == old.certificate


def test_an_issuer_that_is_not_here_is_not_found(folder: Path) -> None:
    (folder / "ca.crt").write_bytes((folder / "client.crt").read_bytes())
    facts = read_directory(folder, [TunnelRole.AGENT], [])
    leaf = facts.leaves[TunnelRole.AGENT].certificate
    assert leaf is not None
    assert facts.issuer_of(leaf) is None


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


def test_what_is_no_such_state_is_refused_without_repeating_it() -> None:
    for content, why in (
        (b"\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", r"no \*tls.RootCA"),
        (state("text"), r"no \*tls.RootCA"),
        (state({"KeyRaw": SECRET}), "no CertRaw"),
        (state({"CertRaw": encoded(ROOT.certificate)}), "no KeyRaw"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": 7}), "no KeyRaw"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": f"ü{SECRET}"}), "not base64"),
        (state({"CertRaw": encoded(ROOT.certificate), "KeyRaw": SECRET}), "not PEM"),
    ):
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
