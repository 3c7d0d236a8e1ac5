"""What is seen of a directory; what it means is judged elsewhere."""

from pathlib import Path

import pytest
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority

from umbilical.pki.directory import look_at, read_certificate_file
from umbilical.pki.tunnel_set import Role


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki", addresses=(ADDRESS, "api.example.com"))


def test_a_whole_directory_has_no_trouble(folder: Path) -> None:
    facts = look_at(folder, Role, [ADDRESS])
    assert facts.folder_mode == 0o700
    assert [one.common_name for one in facts.authority.certificates] == ["konnectivity-signer"]
    assert (facts.authority_key.mode, facts.authority_key.refusal) == (0o600, None)
    assert list(facts.leaves) == list(Role)
    assert all(leaf.is_loadable and leaf.chain is None and leaf.key.mode == 0o600 for leaf in facts.leaves.values())
    assert facts.connections == {ADDRESS: None}


def test_without_an_address_agents_dial_the_first_name(folder: Path) -> None:
    assert look_at(folder, Role, []).connections == {"api.example.com": None}


def test_only_what_is_asked_for_is_looked_at(folder: Path) -> None:
    facts = look_at(folder, [Role.AGENT], [ADDRESS])
    assert list(facts.leaves) == [Role.AGENT]
    assert facts.connections == {}


def test_missing_files_are_facts(tmp_path: Path) -> None:
    facts = look_at(tmp_path, [Role.SERVER, Role.AGENT], [])
    server = facts.leaves[Role.SERVER]
    assert (server.certificate, server.file.trouble, server.key.mode) == (None, "No such file or directory", None)
    assert (facts.authority.certificates, facts.authority_key.mode) == ((), None)
    assert not server.file.exists


def test_a_key_in_the_place_of_a_certificate_is_told(folder: Path) -> None:
    found = read_certificate_file(folder / "server.key")
    assert (found.certificates, found.trouble, found.exists) == ((), "it holds a private key", True)


def test_the_issuer_is_found_by_its_identifier_where_names_are_alike(tmp_path: Path) -> None:
    old, new = new_authority(), new_authority()
    files = {**make_files(old), "ca.crt": new.bundle + old.bundle}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    facts = look_at(tmp_path, [Role.AGENT], [])
    leaf = facts.leaves[Role.AGENT].certificate
    assert leaf is not None
    assert facts.issuer_of(leaf) == old.certificate


def test_an_issuer_that_is_not_here_is_not_found(folder: Path) -> None:
    (folder / "ca.crt").write_bytes((folder / "client.crt").read_bytes())
    facts = look_at(folder, [Role.AGENT], [])
    leaf = facts.leaves[Role.AGENT].certificate
    assert leaf is not None
    assert facts.issuer_of(leaf) is None
