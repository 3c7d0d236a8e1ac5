"""How topics become entries."""

import pytest

from umbilical.assets.hardway.explain.entry import Entry, EntryKind, from_topic, sentence
from umbilical.assets.hardway.topic import Topic, TopicKind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("what a person needs", "What a person needs."),
        ("etcd's certificates", "etcd's certificates."),
        ("kube-apiserver (--client-ca-file)", "kube-apiserver (--client-ca-file)."),
        ("All is well.", "All is well."),
        ("", ""),
    ],
)
def test_words_become_sentences(text: str, told: str) -> None:
    assert sentence(text) == told


def test_an_entry_says_what_it_has_to_say_in_order_and_where_it_belongs() -> None:
    topic = Topic(TopicKind.FLAG, "kubelet --node-ip", 8, "an address", "kubelet", "another one", "grep x y", "alike")
    entry = from_topic(topic)
    assert entry.rows == [
        ("what", "An address."),
        ("readers", "kubelet."),
        ("without", "Another one."),
        ("by hand", "grep x y"),
        ("installer", "Alike."),
    ]
    assert entry.belongs == "flag, stage 08"
    assert entry.aliases == ("--node-ip", "node-ip")


def test_what_is_not_said_is_left_out() -> None:
    assert Entry(EntryKind.CODE, "UMB001", "wrong").rows == [("what", "wrong")]
