"""All stages: seventeen, in order, each explained, each undone by somebody."""

from umbilical.assets.hardway.topic import TopicKind
from umbilical.hardway.stages import catalogue


def test_there_are_seventeen_in_their_order() -> None:
    assert [stage.number for stage in catalogue.stages()] == list(range(1, 18))
    names = [stage.name for stage in catalogue.stages()]
    assert len(set(names)) == len(names)


def test_a_stage_builds_only_on_earlier_ones() -> None:
    for stage in catalogue.stages():
        assert all(need < stage.number for need in stage.needs), stage.name


def test_every_stage_is_explained_in_full() -> None:
    topics = {topic.name: topic for topic in catalogue.topics() if topic.kind is TopicKind.STAGE}
    assert sorted(topics) == [f"{stage.number:02}" for stage in catalogue.stages()]
    for topic in topics.values():
        assert topic.stage == int(topic.name)
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name


def test_titles_are_told_alike() -> None:
    for stage in catalogue.stages():
        assert stage.title[0].islower(), stage.title
        assert not stage.title.endswith("."), stage.title


def test_inverses_of_all_stages_are_known() -> None:
    known = catalogue.undoers()
    assert {"remove-files", "remove-release", "destroy-machines", "remove-machine", "set-balancer"} <= set(known)
