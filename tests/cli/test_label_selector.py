"""Which texts are label selectors and label lists."""

import pytest

from umbilical.cli.go_values import ValueSyntaxError
from umbilical.cli.label_selector import parse_labels, parse_selector


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k8s-app=konnectivity-server",
        "app",
        "!app",
        "a=b,c!=d,e==f",
        "a=",
        "env in (prod, dev),tier notin (front)",
        "example.com/name=x",
        "n>5",
        "n < 3",
        " a = b ",
    ],
)
def test_selectors_in_full_syntax_are_taken_as_they_are(text: str) -> None:
    assert parse_selector(text) == text


@pytest.mark.parametrize("text", ["*x*", "a=b=c", ",a", "a,", "a in b", "a in ()x", "=b", "a=b c", "-a=b", "a/b/c=d"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueSyntaxError, match=r"^unable to parse requirement: "):
        parse_selector(text)


def test_labels_are_pairs_between_commas() -> None:
    assert parse_labels("a=b, c = d ,e=") == {"a": "b", "c": "d", "e": ""}


@pytest.mark.parametrize(
    ("text", "fault"),
    [("", "empty string provided"), ("a", "invalid label format: a"), ("a=b,c=d=e", "invalid label format: c=d=e")],
)
def test_wrong_labels_are_refused_in_the_words_of_upstream(text: str, fault: str) -> None:
    with pytest.raises(ValueSyntaxError) as refusal:
        parse_labels(text)
    assert str(refusal.value) == fault
