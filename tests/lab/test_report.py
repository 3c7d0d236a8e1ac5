"""A transcript, its decisive moments, and its report: one HTML file without scripts or external resources."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.transcripts import AGENTS, HOSTILE, NODES, failed_transcript, mended_transcript, whole_transcript

from umbilical.fault import LabError
from umbilical.lab.report import render, write_report
from umbilical.lab.report_style import box, drawing, element, line, path, text
from umbilical.lab.report_timeline import WIDTH as TIMELINE_WIDTH
from umbilical.lab.report_timeline import Turn, decisive, length, tick_seconds, timeline
from umbilical.lab.report_topology import WIDTH as TOPOLOGY_WIDTH
from umbilical.lab.report_topology import described, topology
from umbilical.lab.transcript import CallResult, NoView, Picture, StepOutcome, Transcript, TranscriptStep


def ticking(*moments: float) -> Iterator[float]:
    yield from moments


class Listener(NoView):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def began(self, step: TranscriptStep) -> None:
        self.heard.append(f"began {step.title}")

    def saw(self, step: TranscriptStep, evidence: str) -> None:
        self.heard.append(f"{step.title}: {evidence}")

    def ended(self, step: TranscriptStep) -> None:
        self.heard.append(f"{step.outcome.value} {step.title}")

    def shows(self, picture: Picture) -> None:
        self.heard.append(picture.call.value)


def test_a_scenario_keeps_its_steps_however_they_end() -> None:
    times = ticking(100.0, 101.0, 103.5)
    listener = Listener()
    transcript = Transcript("birth", listener, lambda: next(times))
    with transcript.step("start etcd"):
        transcript.saw("ready to serve client requests")
    (step,) = transcript.steps
    assert (step.outcome, step.started_seconds, step.seconds) == (StepOutcome.DONE, 1.0, 2.5)
    assert step.evidence == ["ready to serve client requests"]
    assert listener.heard == ["began start etcd", "start etcd: ready to serve client requests", "done start etcd"]
    transcript = Transcript("birth")
    with pytest.raises(KeyboardInterrupt), transcript.step("wait"):
        raise KeyboardInterrupt
    assert transcript.steps[0].outcome is StepOutcome.FAILED


def test_a_change_of_the_picture_keeps_what_is_not_named() -> None:
    times = ticking(0.0, 1.0, 2.0)
    listener = Listener()
    transcript = Transcript("birth", listener, lambda: next(times))
    transcript.shows(server=True)
    transcript.shows(call=CallResult.DENIED)
    assert transcript.picture == Picture(server=True, call=CallResult.DENIED)
    assert [moment for moment, _ in transcript.pictures] == [1.0, 2.0]
    assert listener.heard == ["none", "denied"]


def test_a_whole_scenario_turns_four_times_and_a_refused_call_before_the_tunnel_is_no_breakage() -> None:
    moments = decisive(whole_transcript())
    assert [moment.turn for moment in moments] == [Turn.WITHOUT, Turn.ALLOWED, Turn.DENIED, Turn.CUT]
    assert [moment.turn for moment in decisive(failed_transcript())] == [Turn.WITHOUT]
    assert decisive(Transcript("nothing")) == []


def test_a_moment_knows_its_time_its_step_and_the_fullest_picture() -> None:
    without, allowed, _, cut = decisive(whole_transcript())
    assert without.step is not None
    assert without.step.title == "without the tunnel the bootstrap kube-apiserver is blocked"
    assert without.step.started_seconds <= without.seconds <= without.step.started_seconds + without.step.seconds
    # The production call came later, and nothing else had changed until then.
    assert without.picture.production_call is CallResult.DENIED
    assert allowed.picture.agents == AGENTS
    assert cut.picture.production_call is CallResult.ALLOWED


def test_a_breakage_in_a_scenario_is_broken_and_not_cut_off() -> None:
    turns = [moment.turn for moment in decisive(mended_transcript())]
    assert turns == [Turn.WITHOUT, Turn.ALLOWED, Turn.DENIED, Turn.BROKEN, Turn.ALLOWED]
    transcript = Transcript("breakage")
    transcript.shows(server=True, agents=AGENTS, call=CallResult.ALLOWED)
    transcript.shows(call=CallResult.UNREACHABLE)
    transcript.shows(call=CallResult.ALLOWED)
    assert [moment.turn for moment in decisive(transcript)] == [Turn.ALLOWED, Turn.BROKEN, Turn.ALLOWED]
    transcript = Transcript("teardown")
    transcript.shows(server=True, agents=AGENTS, call=CallResult.ALLOWED)
    transcript.shows(agents=AGENTS[:1])
    assert [moment.picture.agents for moment in decisive(transcript)] == [AGENTS]


# What XML 1.0 can hold at all; reports escape the rest before.
VISIBLE = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")))


def test_names_and_numbers_are_written_as_svg_has_them() -> None:
    assert element("path", class_="way", text_anchor="end", x=1.5) == '<path class="way" text-anchor="end" x="1.5"/>'
    assert element("g", x=1 / 3, y=2.0, z=0.0) == '<g x="0.33" y="2" z="0"/>'
    for shape in (box(0, 0, 1, 1, "host"), line(0, 0, 1, 1, "host"), path("M0 0", "host")):
        assert ElementTree.fromstring(shape).get("class") == "host"


@given(VISIBLE)
def test_any_words_come_back_as_they_went_in(words: str) -> None:
    drawn = ElementTree.fromstring(drawing(10, 20.5, words, text(1, 2, words, "note")))
    assert drawn.get("aria-label") == words
    assert drawn.get("viewBox") == "0 0 10 20.5"
    assert (drawn[0].text or "") == words


BLOCKED = Picture(nodes=NODES, apiserver=True, webhook="worker-0", call=CallResult.UNREACHABLE)
CARRIED = replace(BLOCKED, server=True, agents=AGENTS, call=CallResult.ALLOWED)
CUT = replace(CARRIED, server=False, agents=(), production_apiserver=True, production_call=CallResult.ALLOWED)


def _topology(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(topology(picture))


def _words(picture: Picture) -> list[str]:
    return [shape.text or "" for shape in _topology(picture).iter("text")]


def _ways(picture: Picture, kind: str) -> int:
    return sum((shape.get("class") or "").startswith(f"way {kind}") for shape in _topology(picture).iter())


def test_machines_are_named_and_a_blocked_call_ends_at_a_cross_and_says_why() -> None:
    assert set(NODES) <= set(_words(BLOCKED))
    assert "no route" in _words(BLOCKED)
    assert _ways(BLOCKED, "unreachable") == 2
    assert _words(BLOCKED).count("agent") == 0
    many = tuple(f"worker-{number}" for number in range(20))
    assert set(many) <= set(_words(Picture(nodes=many)))


def test_a_carried_call_takes_the_socket_every_cord_and_the_last_leg() -> None:
    # Socket and its tip, five cords and their tip, the way to the pod.
    assert _ways(CARRIED, "allowed") == 2 + 6 + 1
    assert _words(CARRIED).count("agent") == 5
    assert "5 agents, mutual TLS" in _words(CARRIED)
    assert "no route" not in _words(CARRIED)
    assert "1 agent, mutual TLS" in _words(replace(CARRIED, agents=("master-1",)))
    waiting = replace(CARRIED, call=CallResult.NONE)
    assert _ways(waiting, "cord") == 6
    assert _ways(waiting, "idle") == 2
    lost = replace(CARRIED, call=CallResult.UNREACHABLE)
    # Socket, its tip, the cross.
    assert _ways(lost, "unreachable") == 3
    assert _ways(lost, "cord") == 6


def test_after_the_cut_only_production_has_a_way_and_a_stand_in_its_own_name() -> None:
    assert _ways(CUT, "allowed") == 1
    assert _words(CUT).count("kube-apiserver") == 2
    assert 'class="absent server"' in topology(CUT)
    drawn = topology(CUT, "stand-in")
    assert "kube-apiserver" not in drawn
    assert drawn.count(">stand-in<") == 2


def test_it_is_described_for_those_who_cannot_see_it_and_every_picture_can_be_drawn() -> None:
    assert _topology(CARRIED).get("aria-label") == described(CARRIED, "kube-apiserver")
    assert "server up, 5 agents connected" in described(CARRIED, "kube-apiserver")
    assert "production kube-apiserver: allowed" in described(CUT, "kube-apiserver")
    for shown in (Picture(), Picture(nodes=NODES), BLOCKED, CARRIED, CUT, Picture(webhook="nowhere")):
        assert _topology(shown).get("viewBox", "").startswith(f"0 0 {TOPOLOGY_WIDTH:g} ")


def _drawn(transcript: Transcript) -> ElementTree.Element:
    return ElementTree.fromstring(timeline(transcript))


def _bars(transcript: Transcript) -> list[tuple[float, float]]:
    bars = [shape for shape in _drawn(transcript).iter("rect") if "bar" in (shape.get("class") or "")]
    return [(float(bar.get("x", "")), float(bar.get("width", ""))) for bar in bars]


def test_every_step_has_a_bar_as_long_as_it_took_within_the_picture_and_a_link() -> None:
    transcript = whole_transcript()
    bars = _bars(transcript)
    assert len(bars) == len(transcript.steps)
    scale = bars[1][1] / transcript.steps[1].seconds
    for (left, width), step in zip(bars, transcript.steps, strict=True):
        assert width == pytest.approx(step.seconds * scale, abs=0.02)
        assert left == pytest.approx(bars[0][0] + step.started_seconds * scale, abs=0.02)
    assert all(left >= 0 and left + width <= TIMELINE_WIDTH for left, width in bars)
    links = [link.get("href") for link in _drawn(whole_transcript()).iter("a")]
    assert links[:2] == ["#step-1", "#step-2"]


def test_a_step_says_how_the_calls_in_it_ended_and_its_label_stands_where_it_fits() -> None:
    rows = [row for row in _drawn(whole_transcript()) if (row.get("class") or "").startswith("row")]
    ended = {number: [word.text for word in row.iter("tspan")] for number, row in enumerate(rows, 1)}
    assert {number: words for number, words in ended.items() if words} == {
        5: ["unreachable"],
        6: ["production: denied"],
        9: ["allowed"],
        10: ["denied"],
        14: ["production: allowed"],
    }
    anchors = [
        shape.get("text-anchor")
        for shape in _drawn(whole_transcript()).iter("text")
        if shape.get("class") == "duration"
    ]
    assert anchors == [None] * 13 + ["end"]


def test_a_failed_step_and_one_that_still_runs_look_different() -> None:
    failed = failed_transcript()
    assert 'class="bar failed"' in timeline(failed)
    failed.steps[-1].outcome, failed.steps[-1].ended_seconds = StepOutcome.RUNNING, None
    assert 'class="bar running"' in timeline(failed)
    assert ">running<" in timeline(failed)


def test_steps_of_no_time_none_at_all_and_long_titles_can_be_drawn() -> None:
    transcript = Transcript("fast", clock=lambda: 5.0)
    with transcript.step("at once"):
        pass
    assert [width > 0 for _, width in _bars(transcript)] == [True]
    assert _bars(Transcript("empty", clock=lambda: 0.0)) == []
    assert length(Transcript("empty", clock=lambda: 0.0)) == 0.0
    transcript = Transcript("long", clock=lambda: 0.0)
    with transcript.step("a" * 200):
        pass
    assert f"{'a' * 200}: done" in timeline(transcript)
    assert f">{'a' * 200}<" not in timeline(transcript)


def test_ticks_are_round_and_few() -> None:
    ticks = {0.0: 0.001, 0.8: 0.1, 7.9: 1, 9: 2, 34.6: 5, 41: 10, 3600: 500}
    assert {seconds: tick_seconds(seconds) for seconds in ticks} == pytest.approx(ticks)


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


def test_every_tag_is_closed_every_link_stays_in_the_page_and_nothing_is_run_or_fetched() -> None:
    for transcript in (whole_transcript(), mended_transcript(), failed_transcript(), Transcript("empty")):
        reader = Reader(render(transcript, NOW))
        assert reader.open == []
        assert all(link.startswith("#") and link[1:] in reader.identifiers for link in reader.links)
    page = render(whole_transcript(), NOW)
    reader = Reader(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    style = page[page.index("<style>") : page.index("</style>")]
    assert not re.search(r"@import|url\(|@font-face", style)
    assert "default-src 'none'" in page


def test_hostile_evidence_is_shown_and_not_obeyed() -> None:
    page = render(failed_transcript(), NOW)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "<script>alert('1')</script> & \\x1b[31mred\\x1b[0m" in "".join(Reader(page).words)
    assert "<script>" in HOSTILE


@given(st.text(), st.text(), st.text())
def test_no_text_can_leave_its_place(title: str, evidence: str, figure: str) -> None:
    transcript = Transcript(title)
    with transcript.step(title):
        transcript.saw(evidence)
    transcript.figures[figure] = evidence
    page = render(transcript, NOW)
    page.encode()
    assert Reader(page).open == []
    assert not {"script", "img"} & set(Reader(page).tags)


def test_steps_figures_and_moments_are_all_there() -> None:
    transcript = whole_transcript()
    page = render(transcript, NOW)
    words = "".join(Reader(page).words)
    assert all(step.title in words for step in transcript.steps)
    assert all(piece.splitlines()[0] in words for step in transcript.steps for piece in step.evidence)
    assert all(name in words and value in words for name, value in transcript.figures.items())
    assert page.count("<figure>") == 4
    assert "Passed: 14 steps in 36.5 s." in words
    assert "2026-11-15 18:00 UTC" in words
    assert "network is unreachable</code></blockquote>" in render(whole_transcript(), NOW)


def test_a_failed_scenario_says_where_and_a_stand_in_is_said_plainly() -> None:
    page = render(failed_transcript(), NOW)
    assert '<span class="verdict failed">Failed</span> at step 6' in page
    assert re.search(r'<li id="step-6"><details open>', page)
    assert '<li id="step-5"><details>' in page
    assert "a stand-in replaced kube-apiserver" in render(whole_transcript(), NOW, is_stand_in=True)
    assert "make demo-real" in render(whole_transcript(), NOW, is_stand_in=True)
    assert "stood in" not in render(whole_transcript(), NOW)


def test_it_is_written_where_asked_or_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "out" / "demo" / "report.html"
    assert write_report(Transcript("older"), path) == path
    write_report(whole_transcript(), path)
    assert "A webhook through the tunnel" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LabError, match=r"(?s)UMB870.*next: .*--report"):
        write_report(whole_transcript(), tmp_path / "file" / "report.html")
