"""A transcript as one HTML file without scripts or external resources."""

import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from umbilical import __version__
from umbilical.checks.report import printable
from umbilical.fault import HostError, LabError
from umbilical.host.files import make_directory, write_public
from umbilical.lab.report_style import STYLE
from umbilical.lab.report_timeline import Moment, Turn, decisive, length, timeline
from umbilical.lab.report_topology import topology
from umbilical.lab.transcript import CallResult, StepOutcome, Transcript, TranscriptStep

REAL_CALLER: Final = "kube-apiserver"
STAND_IN: Final = "stand-in"
_FOLDER_MODE: Final = 0o755
# Evidence is output of other programs: it must not make the page run or fetch anything.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SIGNS: Final = {StepOutcome.DONE: "✓", StepOutcome.FAILED: "✗", StepOutcome.RUNNING: "…"}
_STAND_IN_NOTICE: Final = (
    "No Kubernetes ran here: a stand-in replaced kube-apiserver. It read the same egress selector configuration, used "
    "the same socket and sent a real AdmissionReview over TLS. To run with the real kube-apiserver: "
    "<code>make demo-real</code>."
)
_CAPTIONS: Final = {
    Turn.WITHOUT: "The bootstrap node has no route to the pod network: its call to the webhook fails.",
    Turn.ALLOWED: "The same call goes through the server's socket, and one of the agents dials the pod.",
    Turn.DENIED: "The webhook denies a request.",
    Turn.BROKEN: "Something is broken: the call does not reach the webhook.",
    Turn.CUT: "The tunnel and all its files and objects are removed.",
}
_ON_LOOPBACK: Final = {
    **_CAPTIONS,
    Turn.WITHOUT: "The caller is configured for a missing tunnel: its call to the webhook fails.",
    Turn.ALLOWED: "The same call goes through the server's socket, and one of the agents dials the webhook.",
}
_PRODUCTION: Final = {
    Turn.WITHOUT: "A production kube-apiserver on a master needs no tunnel.",
    Turn.CUT: "Production works without it.",
}


def write_report(transcript: Transcript, path: Path, *, is_stand_in: bool = False) -> Path:
    """Write the report, replacing an older one. Raises LabError: it is not writable (UMB870)."""
    content = render(transcript, datetime.now(UTC), is_stand_in=is_stand_in)
    try:
        make_directory(path.parent, _FOLDER_MODE)
        return write_public(path, content.encode(), overwrite=True)
    except (OSError, HostError) as fault:
        remedy = "choose another file: --report FILE"
        raise LabError("UMB870", f"the report {path} was not written", str(fault), remedy) from fault


def render(transcript: Transcript, now: datetime, *, is_stand_in: bool = False) -> str:
    caller = STAND_IN if is_stand_in else REAL_CALLER
    sections = (
        _head(transcript, now, is_stand_in),
        *_moments(transcript, caller),
        _times(transcript),
        _steps(transcript),
        _foot(),
    )
    title = escape(printable(transcript.title))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}: Umbilical</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _head(transcript: Transcript, now: datetime, is_stand_in: bool) -> str:
    notice = f'<p class="notice">{_STAND_IN_NOTICE}</p>' if is_stand_in else ""
    if transcript.not_shown:
        notice += f'<p class="notice">Not shown: {_words(transcript.not_shown)}.</p>'
    return (
        f'<header>\n<p class="eyebrow">Umbilical {escape(__version__)} · {now:%Y-%m-%d %H:%M} UTC</p>\n'
        f"<h1>{escape(printable(transcript.title))}</h1>\n<p>{_verdict(transcript)}</p>\n{notice}{_figures(transcript)}\n</header>"
    )


def _verdict(transcript: Transcript) -> str:
    failed = next((step for step in transcript.steps if step.outcome is StepOutcome.FAILED), None)
    if failed is not None:
        number = transcript.steps.index(failed) + 1
        return f'<span class="verdict failed">Failed</span> at step {number}: {_words(failed.title)}'
    return f'<span class="verdict done">Passed</span>: {len(transcript.steps)} steps in {length(transcript):.1f} s.'


def _figures(transcript: Transcript) -> str:
    if not transcript.figures:
        return ""
    rows = (f"<div><dt>{_words(name)}</dt><dd>{_words(value)}</dd></div>" for name, value in transcript.figures.items())
    return f"\n<dl>{''.join(rows)}</dl>"


def _moments(transcript: Transcript, caller: str) -> Iterator[str]:
    moments = decisive(transcript)
    if moments:
        figures = "\n".join(_figure(moment, transcript, caller) for moment in moments)
        yield (
            "<section>\n<h2>Decisive moments</h2>\n"
            "<p>The same machines and the same call, with and without the tunnel.</p>"
            f'\n<div class="moments">\n{figures}\n</div>\n</section>'
        )


def _figure(moment: Moment, transcript: Transcript, caller: str) -> str:
    caption = f"<b>{escape(moment.turn.value)}</b>{escape(_caption(moment))} {_where(moment, transcript)}"
    picture = topology(moment.picture, caller)
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{picture}\n{_quote(moment)}</figure>"


def _caption(moment: Moment) -> str:
    captions = _ON_LOOPBACK if moment.picture.on_loopback else _CAPTIONS
    said = captions[moment.turn]
    is_answered = moment.picture.production_call in (CallResult.ALLOWED, CallResult.DENIED)
    return f"{said} {_PRODUCTION[moment.turn]}" if is_answered and moment.turn in _PRODUCTION else said


def _where(moment: Moment, transcript: Transcript) -> str:
    if moment.step is None:
        return ""
    number = transcript.steps.index(moment.step) + 1
    return f'<a href="#step-{number}">Step {number}</a>, at {moment.seconds:.1f} s.'


def _quote(moment: Moment) -> str:
    """Quote the last line of evidence of the moment's step."""
    lines = "\n".join(moment.step.evidence).splitlines() if moment.step else []
    return f"<blockquote><code>{_words(lines[-1])}</code></blockquote>\n" if lines else ""


def _times(transcript: Transcript) -> str:
    return (
        "<section>\n<h2>Timeline</h2>\n<p>Every step with its duration and the results of its webhook calls.</p>\n"
        f'<div class="wide">{timeline(transcript)}</div>\n</section>'
    )


def _steps(transcript: Transcript) -> str:
    rows = "\n".join(_step(number, step) for number, step in enumerate(transcript.steps, 1))
    return (
        "<section>\n<h2>Steps and their evidence</h2>\n<p>Evidence is output of programs, unchanged.</p>"
        f'\n<ol class="steps">\n{rows}\n</ol>\n</section>'
    )


def _step(number: int, step: TranscriptStep) -> str:
    sign = f'<span class="sign {step.outcome.value}" aria-label="{step.outcome.value}">{_SIGNS[step.outcome]}</span>'
    time = f'<span class="time">{step.seconds:.1f} s</span>'
    line = f'<span class="number">{number}</span>{sign}<span class="title">{_words(step.title)}</span>{time}'
    if not step.evidence:
        return f'<li id="step-{number}"><div class="bare">{line}</div></li>'
    is_open = " open" if step.outcome is not StepOutcome.DONE else ""
    evidence = "\n".join(_words(text) for piece in step.evidence for text in piece.splitlines())
    return f'<li id="step-{number}"><details{is_open}><summary>{line}</summary><pre>{evidence}</pre></details></li>'


def _foot() -> str:
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"<footer>Written by umbilical lab {escape(__version__)} on {escape(machine)}.</footer>"


def _words(text: str) -> str:
    return escape(printable(text))
