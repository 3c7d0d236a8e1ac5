"""Static pods in words: nothing of what is rendered is left out."""

import pytest
import yaml
from tests.support.hardway_pods import tree

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.topics import TOPICS
from umbilical.assets.hardway.topic import TopicKind

BY_NAME = {topic.name: topic for topic in TOPICS}


def test_no_name_stands_twice() -> None:
    assert len(BY_NAME) == len(TOPICS)


def test_every_topic_answers_every_question() -> None:
    for topic in TOPICS:
        for field in ("what", "readers", "without", "by_hand", "installer"):
            assert getattr(topic, field).strip(), f"{topic.name}: {field}"


@pytest.mark.parametrize("profile", Profile)
def test_every_file_is_told_about(profile: Profile) -> None:
    files = {asset.path.rpartition("/")[2] for asset in tree(profile)}
    told = {topic.name for topic in TOPICS if topic.kind is TopicKind.FILE}
    assert files <= told


def test_no_file_is_told_about_that_nobody_gets() -> None:
    files = {asset.path.rpartition("/")[2] for profile in Profile for asset in tree(profile)}
    assert {topic.name for topic in TOPICS if topic.kind is TopicKind.FILE} == files


@pytest.mark.parametrize("profile", Profile)
def test_every_flag_and_variable_of_every_pod_is_told_about(profile: Profile) -> None:
    for asset in tree(profile):
        pod = yaml.safe_load(asset.content) if asset.path.endswith(".yaml") else {}
        for container in pod.get("spec", {}).get("containers", ()):
            names = [word.partition("=")[0] for word in container["args"] if word.startswith("--")]
            names += [one["name"] for one in container.get("env", ())]
            assert [name for name in names if name not in BY_NAME] == [], asset.path


def test_a_flag_of_several_programs_says_what_it_means_to_each() -> None:
    topic = BY_NAME["--kubeconfig"]
    assert "kube-proxy: " in topic.what
    assert "cluster-version-operator" in topic.readers
    assert BY_NAME["--v"].what.count(":") == 0
