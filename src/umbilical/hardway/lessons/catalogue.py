"""All lessons, in the order in which one meets their faults."""

from collections.abc import Iterable
from typing import Final

from umbilical.hardway.explain.entry import Entry, EntryKind
from umbilical.hardway.lessons import certificate_lessons, manifest_lessons, node_lessons
from umbilical.hardway.lessons.lesson import Lesson

LESSONS: Final[tuple[Lesson, ...]] = (
    *certificate_lessons.LESSONS,
    *manifest_lessons.LESSONS,
    *node_lessons.LESSONS,
)


def entries() -> Iterable[Entry]:
    """Explain every lesson; this tells the answer."""
    return map(_entry, LESSONS)


def _entry(lesson: Lesson) -> Entry:
    profiles = " and ".join(sorted(profile.value for profile in lesson.profiles))
    live = f" With --live: {lesson.live.fault}" if lesson.live is not None else ""
    return Entry(
        EntryKind.LESSON,
        lesson.id,
        lesson.story,
        scope=f"for {profiles}",
        readers=f"Whoever runs umbilical stage break {lesson.id}; rule {' or '.join(lesson.rules)} recognises it.",
        without=f"The fault: {lesson.fault}{live}",
        fix=lesson.mending,
        by_hand=f"umbilical stage break {lesson.id} --dir DIR; umbilical stage doctor --dir DIR",
    )
