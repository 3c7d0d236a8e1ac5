"""Verdicts out of answers in a row."""

from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.thresholds import Verdict


def test_one_success_is_enough_and_three_failures_are_needed() -> None:
    verdict = Verdict(1, 3)
    seen = [verdict.saw(good) for good in (False, False, True, False, False, True, False, False, False, True)]
    assert seen == [None, None, True, True, True, True, True, True, False, True]


def test_a_container_that_never_answers_is_judged_in_the_end() -> None:
    verdict = Verdict(1, 3)
    assert [verdict.saw(False) for _ in range(3)] == [None, None, False]


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.booleans(), max_size=40))
def test_a_verdict_follows_only_from_enough_answers_of_its_kind(good: int, bad: int, answers: list[bool]) -> None:
    verdict = Verdict(good, bad)
    before: bool | None = None
    for index, answer in enumerate(answers):
        after = verdict.saw(answer)
        if after is not before:
            needed = good if after else bad
            assert answers[index + 1 - needed : index + 1] == [after] * needed
        before = after
