"""A story keeps what was told: steps with their times, evidence and ends, and the pictures between them."""

from collections.abc import Iterator

import pytest

from umbilical.lab.story import Call, Outcome, Picture, Silence, Step, Story


def ticking(*moments: float) -> Iterator[float]:
    yield from moments


class Listener(Silence):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def began(self, step: Step) -> None:
        self.heard.append(f"began {step.title}")

    def saw(self, step: Step, evidence: str) -> None:
        self.heard.append(f"{step.title}: {evidence}")

    def ended(self, step: Step) -> None:
        self.heard.append(f"{step.outcome.value} {step.title}")

    def shows(self, picture: Picture) -> None:
        self.heard.append(picture.call.value)


def test_a_step_that_ends_well_has_its_time_and_evidence() -> None:
    times = ticking(100.0, 101.0, 103.5)
    listener = Listener()
    story = Story("birth", listener, lambda: next(times))
    with story.step("start etcd"):
        story.saw("ready to serve client requests")
    (step,) = story.steps
    assert (step.outcome, step.started_seconds, step.seconds) == (Outcome.DONE, 1.0, 2.5)
    assert step.evidence == ["ready to serve client requests"]
    assert listener.heard == ["began start etcd", "start etcd: ready to serve client requests", "done start etcd"]


def test_a_step_that_raises_is_failed_and_the_error_goes_on() -> None:
    story = Story("birth")
    with pytest.raises(KeyboardInterrupt), story.step("wait"):
        raise KeyboardInterrupt
    assert story.steps[0].outcome is Outcome.FAILED


def test_a_change_of_the_picture_keeps_what_is_not_named() -> None:
    times = ticking(0.0, 1.0, 2.0)
    listener = Listener()
    story = Story("birth", listener, lambda: next(times))
    story.shows(server=True)
    story.shows(call=Call.DENIED)
    assert story.picture == Picture(server=True, call=Call.DENIED)
    assert [moment for moment, _ in story.pictures] == [1.0, 2.0]
    assert listener.heard == ["none", "denied"]
