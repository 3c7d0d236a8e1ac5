"""The report is one HTML file that runs and fetches nothing, whatever the evidence holds."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.told_stories import HOSTILE, broken_story, mended_story, whole_story

from umbilical.lab.errors import LabError
from umbilical.lab.report import render, write_report
from umbilical.lab.story import Story

NOW = datetime(2026, 11, 15, 18, 0, tzinfo=UTC)
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Reads a page as a browser would, and complains where tags do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.identifiers: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src", "xlink:href") if name in values]
        self.identifiers += [values["id"] or ""] if "id" in values else []
        assert not any(name.startswith("on") for name in values)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_every_tag_is_closed_and_every_link_stays_in_the_page() -> None:
    for story in (whole_story(), mended_story(), broken_story(RuntimeError()), Story("empty")):
        reader = Reader(render(story, NOW))
        assert reader.open == []
        assert all(link.startswith("#") and link[1:] in reader.identifiers for link in reader.links)


def test_nothing_is_run_or_fetched() -> None:
    page = render(whole_story(), NOW)
    reader = Reader(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    style = page[page.index("<style>") : page.index("</style>")]
    assert not re.search(r"@import|url\(|@font-face", style)
    assert "default-src 'none'" in page


def test_hostile_evidence_is_shown_and_not_obeyed() -> None:
    page = render(broken_story(RuntimeError()), NOW)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "<script>alert('1')</script> & \\x1b[31mred\\x1b[0m" in "".join(Reader(page).words)
    assert "<script>" in HOSTILE


@given(st.text(), st.text(), st.text())
def test_no_text_can_leave_its_place(title: str, evidence: str, figure: str) -> None:
    story = Story(title)
    with story.step(title):
        story.saw(evidence)
    story.figures[figure] = evidence
    page = render(story, NOW)
    page.encode()
    assert Reader(page).open == []
    assert not {"script", "img"} & set(Reader(page).tags)


def test_steps_figures_and_moments_are_all_there() -> None:
    story = whole_story()
    page = render(story, NOW)
    words = "".join(Reader(page).words)
    assert all(step.title in words for step in story.steps)
    assert all(piece.splitlines()[0] in words for step in story.steps for piece in step.evidence)
    assert all(name in words and value in words for name, value in story.figures.items())
    assert page.count("<figure>") == 4
    assert "Everything went as told: 14 steps in 36.5 s." in words
    assert "2026-11-15 18:00 UTC" in words


def test_a_moment_quotes_the_program() -> None:
    assert "network is unreachable</code></blockquote>" in render(whole_story(), NOW)


def test_a_failed_story_says_where_and_opens_that_step() -> None:
    page = render(broken_story(RuntimeError()), NOW)
    assert '<span class="verdict failed">Failed</span> at step 6' in page
    assert re.search(r'<li id="step-6"><details open>', page)
    assert '<li id="step-5"><details>' in page


def test_the_stand_in_is_said_plainly_and_only_then() -> None:
    assert "stood in for kube-apiserver" in render(whole_story(), NOW, is_stand_in=True)
    assert "make demo-real" in render(whole_story(), NOW, is_stand_in=True)
    assert "stood in" not in render(whole_story(), NOW)


def test_it_is_written_where_asked_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "out" / "demo" / "report.html"
    assert write_report(Story("older"), path) == path
    write_report(whole_story(), path)
    assert "A webhook through the tunnel" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_to_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LabError, match="UMB870") as caught:
        write_report(whole_story(), tmp_path / "file" / "report.html")
    assert "--report" in caught.value.remedy
