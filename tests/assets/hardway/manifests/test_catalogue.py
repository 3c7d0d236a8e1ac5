"""The table of manifests' files."""

import pytest

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.manifests.catalogue import FILES, TOPICS


@pytest.mark.parametrize("profile", Profile)
def test_files_stand_in_the_order_in_which_they_are_applied(profile: Profile) -> None:
    names = [one.name for one in FILES[profile]]
    assert names == sorted(set(names))


def test_every_file_is_explained_once_in_whole_sentences() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(names) == len(set(names))
    assert {one.name for files in FILES.values() for one in files} <= set(names)
    for topic in TOPICS:
        for words in (topic.what, topic.readers, topic.without, topic.installer):
            assert words.endswith("."), (topic.name, words)
        assert topic.by_hand.startswith("kubectl "), topic.name
