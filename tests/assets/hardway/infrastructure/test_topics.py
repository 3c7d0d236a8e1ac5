"""The infrastructure in words: for every file that the recipe makes there are some."""

from pathlib import PurePosixPath

from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import infrastructure

from umbilical.assets.hardway.infrastructure.topics import STAGE, TOPICS


def test_every_file_is_explained_once() -> None:
    files = {PurePosixPath(asset.path) for asset in infrastructure(cluster())}
    expected = {path.parent.name if path.parent.name == "domains" else path.name for path in files}
    assert sorted(topic.name for topic in TOPICS) == sorted(expected)


def test_no_explanation_is_empty() -> None:
    for topic in TOPICS:
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name
        assert topic.stage == STAGE
