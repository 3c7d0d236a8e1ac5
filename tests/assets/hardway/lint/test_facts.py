"""What rules look at: bytes, decoded on demand; whatever lies there, it is read or it is Unreadable."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway import NOW, cluster
from tests.support.hardway_everything import usual

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Facts, Unreadable
from umbilical.assets.tree import Asset

OF = cluster(Profile.KUBERNETES, 1, 1)


@pytest.fixture(scope="module")
def facts() -> Facts:
    return usual(Profile.KUBERNETES, 1, 1).facts()


def holding(**contents: bytes) -> Facts:
    """Artifacts whose paths have `__` for a slash and end with .yaml."""
    paths = {f"{name.replace('__', '/')}.yaml": content for name, content in contents.items()}
    return Facts(OF, {path: Asset(path, content, 0o600) for path, content in paths.items()}, NOW, True)


def test_what_is_missing_is_named(facts: Facts) -> None:
    with pytest.raises(Unreadable, match=r"^tls/nobody.crt is missing$"):
        facts.certificate("nobody")


def test_documents_are_read_once_and_all_of_them_are_objects() -> None:
    facts = holding(two=b"a: 1\n---\nb: 2\n", one=b"a: 1\n", lists=b"- 1\n", broken=b"a: [\n")
    assert facts.documents("two.yaml") == [{"a": 1}, {"b": 2}]
    assert facts.documents("two.yaml") is facts.documents("two.yaml")
    assert facts.document("one.yaml") == {"a": 1}
    for path, words in (("two", "2 documents"), ("lists", "no object"), ("broken", "is not YAML")):
        with pytest.raises(Unreadable, match=words):
            facts.document(f"{path}.yaml")


def test_manifests_come_in_the_order_in_which_they_are_applied() -> None:
    facts = holding(manifests__b=b"n: 3\n", manifests__a=b"n: 1\n---\nn: 2\n", manifests_not=b"n: 4\n")
    assert [(path, one["n"]) for path, one in facts.manifests] == [
        ("manifests/a.yaml", 1),
        ("manifests/a.yaml", 2),
        ("manifests/b.yaml", 3),
    ]


def test_a_directory_is_listed_in_order_and_its_name_must_be_whole() -> None:
    facts = holding(tls__b=b"", tls__a=b"", tlsx__c=b"")
    assert [asset.path for asset in facts.below("tls")] == ["tls/a.yaml", "tls/b.yaml"]


def test_a_nodes_files_are_decoded(facts: Facts) -> None:
    node = facts.cluster.masters[0]
    assert facts.node_file(node, "/etc/hostname").decode().strip() == node.name
    assert facts.ignition(node) is facts.ignition(node)
    with pytest.raises(Unreadable, match="does not write /etc/nothing"):
        facts.node_file(node, "/etc/nothing")


def test_certificates_are_read(facts: Facts) -> None:
    assert facts.certificate("etcd-signer").common_name == facts.certificates("tls/etcd-signer.crt")[0].common_name
    with pytest.raises(Unreadable):
        facts.certificates("tls/etcd-signer.key")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_unreadable(content: bytes) -> None:
    asset = Asset("x", content, 0o600)
    node = OF.masters[0]
    facts = Facts(OF, {"x": asset, f"ignition/{node.id}.ign": asset, "manifests/x.yaml": asset}, NOW, True)
    for read in (
        lambda: facts.documents("x"),
        lambda: facts.document("x"),
        lambda: facts.certificates("x"),
        lambda: facts.ignition(node),
        lambda: facts.manifests,
        lambda: facts.node_file(node, "/etc/hostname"),
    ):
        with suppress(Unreadable):
            read()
    assert facts.text("x") is not None
