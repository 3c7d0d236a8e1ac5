"""The timeline has a bar per step, in proportion, and a mark per call."""

from xml.etree import ElementTree

import pytest
from tests.support.told_stories import broken_story, whole_story

from umbilical.lab.report_timeline import WIDTH, length, tick_seconds, timeline
from umbilical.lab.story import Outcome, Story


def _drawn(story: Story) -> ElementTree.Element:
    return ElementTree.fromstring(timeline(story))


def _bars(story: Story) -> list[tuple[float, float]]:
    bars = [shape for shape in _drawn(story).iter("rect") if "bar" in (shape.get("class") or "")]
    return [(float(bar.get("x", "")), float(bar.get("width", ""))) for bar in bars]


def test_every_step_has_a_bar_as_long_as_it_took() -> None:
    story = whole_story()
    bars = _bars(story)
    assert len(bars) == len(story.steps)
    scale = bars[1][1] / story.steps[1].seconds
    for (left, width), step in zip(bars, story.steps, strict=True):
        assert width == pytest.approx(step.seconds * scale, abs=0.02)
        assert left == pytest.approx(bars[0][0] + step.started_seconds * scale, abs=0.02)


def test_nothing_is_drawn_outside_the_picture() -> None:
    assert all(left >= 0 and left + width <= WIDTH for left, width in _bars(whole_story()))


def test_a_step_links_to_its_evidence() -> None:
    links = [link.get("href") for link in _drawn(whole_story()).iter("a")]
    assert links[:2] == ["#step-1", "#step-2"]


def test_a_step_says_how_the_calls_in_it_ended() -> None:
    rows = [row for row in _drawn(whole_story()) if (row.get("class") or "").startswith("row")]
    ended = {number: [word.text for word in row.iter("tspan")] for number, row in enumerate(rows, 1)}
    assert {number: words for number, words in ended.items() if words} == {
        5: ["unreachable"],
        6: ["production: denied"],
        9: ["allowed"],
        10: ["denied"],
        14: ["production: allowed"],
    }


def test_a_label_that_does_not_fit_beside_the_last_bar_stands_before_it() -> None:
    anchors = [
        shape.get("text-anchor") for shape in _drawn(whole_story()).iter("text") if shape.get("class") == "duration"
    ]
    assert anchors == [None] * 13 + ["end"]


def test_a_failed_step_and_one_that_still_runs_look_different() -> None:
    failed = broken_story(RuntimeError())
    assert 'class="bar failed"' in timeline(failed)
    failed.steps[-1].outcome, failed.steps[-1].ended_seconds = Outcome.RUNNING, None
    assert 'class="bar running"' in timeline(failed)
    assert ">running<" in timeline(failed)


def test_a_step_of_no_time_can_still_be_seen() -> None:
    story = Story("fast", clock=lambda: 5.0)
    with story.step("at once"):
        pass
    assert [width > 0 for _, width in _bars(story)] == [True]


def test_a_story_without_steps_is_an_empty_axis() -> None:
    assert _bars(Story("empty", clock=lambda: 0.0)) == []
    assert length(Story("empty", clock=lambda: 0.0)) == 0.0


def test_a_long_title_is_cut_in_the_row_and_whole_in_its_tip() -> None:
    story = Story("long", clock=lambda: 0.0)
    with story.step("a" * 200):
        pass
    assert f"{'a' * 200}: done" in timeline(story)
    assert f">{'a' * 200}<" not in timeline(story)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 0.001), (0.8, 0.1), (7.9, 1), (9, 2), (34.6, 5), (41, 10), (3600, 500)]
)
def test_ticks_are_round_and_few(seconds: float, expected: float) -> None:
    assert tick_seconds(seconds) == pytest.approx(expected)
