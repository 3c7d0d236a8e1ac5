"""Files of manifests."""

import yaml

from umbilical.assets.hardway.manifests.file import ManifestFile, add_objects, yaml_stream
from umbilical.assets.hardway.topic import TopicKind
from umbilical.assets.tree import AssetTree


def test_several_objects_are_several_documents() -> None:
    objects = [{"kind": "A"}, {"kind": "B"}]
    assert list(yaml.safe_load_all(yaml_stream(objects))) == objects


def test_a_file_with_a_secret_in_it_is_for_its_owner_alone() -> None:
    tree = AssetTree()
    add_objects(tree, "a.yaml", [{"kind": "ConfigMap"}, {"kind": "Secret"}])
    add_objects(tree, "b.yaml", [{"kind": "ConfigMap"}])
    assert [(one.path, one.mode) for one in tree] == [("manifests/a.yaml", 0o600), ("manifests/b.yaml", 0o644)]


def test_a_file_is_told_about_by_its_name() -> None:
    topic = ManifestFile("05-dns.yaml", lambda _: [], "what", "readers", "without", "by hand", "installer").topic
    assert (topic.kind, topic.name, topic.stage, topic.installer) == (TopicKind.FILE, "05-dns.yaml", 7, "installer")
