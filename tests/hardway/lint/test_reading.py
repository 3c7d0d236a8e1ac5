"""Artifacts as rules read them: files, objects, kubeconfigs, the release, the host's files and the load balancer."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.hardway import NOW, cluster
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import changed

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import HOST_PLAN
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.applied import dig, entries, mapping, need, references, release_version, text
from umbilical.hardway.lint.clients import read
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.lint.host_facts import host_plan, is_below, read_balancer
from umbilical.manifests.tree import Asset

OF = cluster(ClusterProfile.KUBERNETES, 1, 1)
FACTS = usual(ClusterProfile.OPENSHIFT).facts()
ADMIN: Final = layout.kubeconfig("admin")
TEXT = """\
# before everything
global
    maxconn 10
defaults
    default-server inter 2s check
listen api
    bind 10.0.0.1:6443   # the API
    bind [fd00::1]:6443
    server a 10.0.0.2:6443 check-ssl verify none
frontend web
    bind :80
    default_backend web
backend web
    default-server fall 2
    server b 10.0.0.3:80 port 1936
    server broken
listen stats
    bind :9000
    stats enable
"""


def holding(**contents: bytes) -> LintFacts:
    """Artifacts whose paths have `__` for a slash and end with .yaml."""
    paths = {f"{name.replace('__', '/')}.yaml": content for name, content in contents.items()}
    return LintFacts(OF, {path: Asset(path, content, 0o600) for path, content in paths.items()}, NOW, True)


def test_documents_are_read_once_and_all_of_them_are_objects() -> None:
    facts = holding(two=b"a: 1\n---\nb: 2\n", one=b"a: 1\n", lists=b"- 1\n", broken=b"a: [\n")
    assert facts.documents("two.yaml") == [{"a": 1}, {"b": 2}]
    assert facts.documents("two.yaml") is facts.documents("two.yaml")
    assert facts.document("one.yaml") == {"a": 1}
    for path, words in (("two", "2 documents"), ("lists", "not an object"), ("broken", "is not YAML")):
        with pytest.raises(Unreadable, match=words):
            facts.document(f"{path}.yaml")


def test_a_directory_is_listed_in_order_and_its_name_must_be_whole() -> None:
    facts = holding(tls__b=b"", tls__a=b"", tlsx__c=b"")
    assert [asset.path for asset in facts.below("tls")] == ["tls/a.yaml", "tls/b.yaml"]


def test_a_nodes_files_are_decoded() -> None:
    facts = usual(ClusterProfile.KUBERNETES, 1, 1).facts()
    node = facts.cluster.masters[0]
    assert facts.node_file(node, "/etc/hostname").decode().strip() == node.name
    assert facts.ignition(node) is facts.ignition(node)
    with pytest.raises(Unreadable, match="does not write /etc/nothing"):
        facts.node_file(node, "/etc/nothing")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_unreadable(content: bytes) -> None:
    asset = Asset("x", content, 0o600)
    node = OF.masters[0]
    facts = LintFacts(OF, {"x": asset, f"ignition/{node.id}.ign": asset, "manifests/x.yaml": asset}, NOW, True)
    for reading in (
        lambda: facts.documents("x"),
        lambda: facts.document("x"),
        lambda: facts.certificates("x"),
        lambda: facts.ignition(node),
        lambda: facts.manifests,
        lambda: facts.node_file(node, "/etc/hostname"),
    ):
        with suppress(Unreadable):
            reading()
    assert facts.text("x") is not None


def test_values_are_reached_by_keys_and_places() -> None:
    value = {"a": [{"b": "c"}]}
    assert dig(value, "a", 0, "b") == "c"
    assert dig(value, "a", 1, "b") is None
    assert (text(value, "a", 0, "b"), text(value, "a")) == ("c", "")
    assert (entries(value, "a"), entries(value, "x")) == ([{"b": "c"}], [])
    assert (mapping(value, "a", 0), mapping(value, "a")) == ({"b": "c"}, {})


def test_what_is_not_applied_is_named() -> None:
    with pytest.raises(Unreadable, match=r"no manifest has Secret a/b \(c\)"):
        need(FACTS, "Secret", "b", "a", "c")


@given(
    st.recursive(
        st.none() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)
    )
)
def test_digging_in_anything_never_fails(value: object) -> None:
    for path in (("a",), (0,), ("a", 0, "b")):
        found = dig(value, *path)
        assert mapping(value, *path) == (found if isinstance(found, dict) else {})
        assert isinstance(entries(value, *path), list)
        assert isinstance(text(value, *path), str)


def test_the_key_stays_out_of_what_is_printed() -> None:
    assert "PRIVATE" not in repr(read(everything(ClusterProfile.OPENSHIFT).facts(), ADMIN))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one.pop("clusters"), "clusters has no such entry"),
        (lambda one: one.update(users="x"), "users has no such entry"),
        (lambda one: one.update({"current-context": ["admin"]}), "contexts has no such entry"),
        (lambda one: one["contexts"][0].update(context=None), "clusters has no such entry"),
        (lambda one: one["clusters"][0]["cluster"].update({"certificate-authority-data": "%"}), "is not base64"),
        (lambda one: one["clusters"][0]["cluster"].update(server="https://[::1"), "is not an https URL"),
        (lambda one: one["clusters"][0]["cluster"].update(server=None), "is not an https URL"),
        (
            lambda one: one["contexts"][0].update(name="x") or one.update({"current-context": "x"}),
            "different names",
        ),
    ],
)
def test_what_a_client_could_not_read_is_told(change: Callable[[dict[str, Any]], object], why: str) -> None:
    broken = changed(everything(ClusterProfile.KUBERNETES), lambda subject: subject.edit(ADMIN, change))
    with pytest.raises(Unreadable, match=why):
        read(broken.facts(), ADMIN)


def test_version_and_images_are_those_of_the_release() -> None:
    assert release_version(FACTS) == hardway.VERSION
    assert dict(references(FACTS)) == dict(hardway.payload().images)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"actions": [1]}', b'{"actions": [{"id": "x", "do": "y"}]}'])
def test_a_plan_of_another_shape_is_refused(content: bytes) -> None:
    broken = changed(everything(ClusterProfile.OPENSHIFT), lambda tree: tree.write(HOST_PLAN, content))
    with pytest.raises(Unreadable, match="host-plan"):
        host_plan(broken.facts())


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [("/pool/a", True), ("/pool/b/../a", True), ("/pool/../a", False), ("/poolish/a", False), ("", False)],
)
def test_what_leaves_a_folder_by_a_detour_is_not_below_it(path: str, is_inside: bool) -> None:
    assert is_below(path, "/pool/") is is_inside


def test_servers_have_what_is_said_of_all() -> None:
    balancer = read_balancer(TEXT)
    (web,) = balancer.backend_at(80)
    (server,) = balancer.servers(web)
    assert server.words == ("inter", "2s", "check", "fall", "2", "port", "1936")
    assert (server.is_checked, server.check_port, server.port) == (True, 1936, 80)
    assert not server.is_checked_over_tls


def test_a_listen_section_is_front_and_back_in_one() -> None:
    balancer = read_balancer(TEXT)
    (api,) = balancer.backend_at(6443)
    assert [server.name for server in balancer.servers(api)] == ["a"]
    assert balancer.servers(api)[0].is_checked_over_tls


def test_every_socket_is_listed_but_those_of_the_statistics() -> None:
    found = [(address, port) for _, address, port in read_balancer(TEXT).binds()]
    assert found == [("10.0.0.1", 6443), ("fd00::1", 6443), ("", 80)]


@given(st.lists(st.sampled_from([*TEXT.split(), "\n", "#", ":", "\x00"]), max_size=60))
def test_any_text_is_read(words: list[str]) -> None:
    balancer = read_balancer(" ".join(words))
    for section in balancer.sections:
        for server in balancer.servers(section):
            assert server.check_port >= 0
    balancer.binds()
    balancer.backend_at(80)
