"""Rows of the hard way's certificate table."""

from umbilical.pki.control_plane_set import Kind
from umbilical.pki.hardway_row import CLIENT, Life, Row, Words, client, signer

WORDS = Words("what", "readers", "without", "installer")


def test_a_row_for_each_node_becomes_that_nodes() -> None:
    row = Row("etcd-peer-{node}", Kind.LEAF, "system:etcd-peer:{node}", WORDS).for_node("master-0")
    assert (row.id, row.common_name, row.node) == ("etcd-peer-master-0", "system:etcd-peer:master-0", "master-0")


def test_files_are_called_like_their_row() -> None:
    assert Row("a", Kind.LEAF, "a", WORDS).public_file == "a.crt"
    assert Row("a", Kind.KEY, "", WORDS).public_file == "a.pub"
    assert Row("a", Kind.KEY, "", WORDS).key_file == "a.key"


def test_signers_sign_themselves_and_clients_only_ask() -> None:
    assert signer("a-signer", Life.YEAR, WORDS).signer == ""
    made = client("a", "a-signer", Life.YEAR, "name", ("group",), WORDS, "bundle")
    assert (made.usages, made.verified_by, made.signer) == (CLIENT, ("bundle",), "a-signer")
