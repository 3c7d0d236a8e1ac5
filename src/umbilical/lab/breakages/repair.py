"""Breaking and mending with a memory: what is broken is written into the lab's state before it is, and mended last
in, first out, from whatever terminal. Meanwhile users call the webhook, and the logs are watched for the line by which
the product says what is wrong. Each is also told as a step of a story.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab.breakages import registry
from umbilical.lab.breakages.pods import server_pid
from umbilical.lab.breakages.registry import Breakage, Memory, Speaker
from umbilical.lab.lab import Lab
from umbilical.lab.scenarios import webhook_through_tunnel
from umbilical.lab.testbed import BOOTSTRAP, Testbed, WebhookVerdict
from umbilical.lab.transcript import CallResult
from umbilical.lab.tunnel_parts import OURS
from umbilical.lab.waiting import wait

# Enough for a call that comes through or is refused; one that hangs is told of as such.
FIRST_SECONDS: Final = 3.0
CALLS_AT_ONCE: Final = 20


class WebhookCalls:
    """One call, and beside it many more if the breakage needs traffic, in threads until the end of the block."""

    def __init__(self, testbed: Testbed, breakage: Breakage, memory: Memory) -> None:
        self._testbed = testbed
        self._breakage = breakage
        self._verdict = WebhookVerdict(CallResult.UNREACHABLE, str(memory["seen"])) if "seen" in memory else None
        self._is_over = threading.Event()
        self._has_first = threading.Event()
        # Nobody waits for a call that hangs: kube-apiserver tries a webhook three times.
        self._threads = [threading.Thread(target=self._call, name="call", daemon=True)]
        if breakage.needs_traffic:
            self._threads.append(threading.Thread(target=self._make_many, name="traffic", daemon=True))

    def __enter__(self) -> "WebhookCalls":
        if self._breakage.speaker is not Speaker.COMMAND:
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def first(self) -> WebhookVerdict | None:
        """Return how the first call ended; None if it still hangs, or none is made."""
        if self._breakage.speaker is not Speaker.COMMAND:
            self._has_first.wait(FIRST_SECONDS)
        return self._verdict

    def _call(self) -> None:
        try:
            if self._verdict is None:
                self._verdict = self._testbed.call_webhook("allow")
            self._has_first.set()
        except (LabError, OSError):
            return  # the lab is being taken down

    def _make_many(self) -> None:
        while not self._is_over.is_set():
            try:
                self._testbed.call_times(CALLS_AT_ONCE)
            except (LabError, OSError):
                self._is_over.wait(0.2)  # one of them failed, as can be expected


class LogWatch:
    """Begin it before the breakage. Lines carry microseconds, so one that was there before is told by its text alone:

    a kubelet deletes the logs of pods that are gone, and positions in them would lie.
    """

    def __init__(self, testbed: Testbed, speaker: Speaker, code: str) -> None:
        self._testbed = testbed
        self._speaker = speaker
        self._code = code
        self._before = set(self._lines())

    def fresh(self) -> str | None:
        """Return the first new line, named after the pod that said it."""
        return next((line for line in self._lines() if line not in self._before), None)

    def _lines(self) -> Iterator[str]:
        runner, lab = self._testbed.runner, self._testbed.lab
        for node, name in self._pods():
            for line in runner.logs(lab, node, name, name).splitlines():
                if self._code in line:
                    yield f"{node}/{name}: {line.strip()}"

    def _pods(self) -> list[tuple[str, str]]:
        if self._speaker is Speaker.SERVER:
            return [(BOOTSTRAP, SERVER_NAME)]
        if self._speaker is Speaker.AGENTS:
            return [(node.name, AGENT_NAME) for node in self._testbed.members]
        return []


# Agents that were refused for a while come back with their back-off, 30 s at most.
WELL_SECONDS: Final = 90.0


@dataclass(frozen=True)
class Broken:
    verdict: WebhookVerdict | None
    """Of a call to the webhook meanwhile; None where it still hangs, or calls have nothing to do with it."""
    line: str
    """The product's own."""


def active_breakages(lab: Lab) -> list[str]:
    """Return what is broken now, oldest first."""
    breakages = lab.breakages()
    return sorted(breakages, key=lambda name: int(_entry(breakages, name).get("number", 0)))


def check(testbed: Testbed, breakage: Breakage) -> None:
    """Refuse before anything is touched. Raises LabError: it is broken already, or its program is not ours."""
    if breakage.name in testbed.lab.breakages():
        why = "it was made before and never mended"
        raise LabError("UMB862", f"{breakage.name} is broken already", why, f"umbilical lab mend {breakage.name}")
    testbed.tunnel  # noqa: B018 - raises where none was laid
    if not testbed.lab.breakages() and server_pid(testbed) is None:
        why = "its server does not run: it was torn down, or never came up"
        raise LabError("UMB862", "there is no tunnel to break", why, "umbilical lab status")
    images = {Speaker.SERVER: testbed.options.server_image, Speaker.AGENTS: testbed.options.agent_image}
    if images.get(breakage.speaker, OURS) != OURS:
        why = f"{images[breakage.speaker]} does not know our codes"
        remedy = "tell it with our own programs: umbilical lab run --keep webhook-through-tunnel"
        raise LabError("UMB862", f"{breakage.name} cannot be recognised in this lab", why, remedy)


def make_breakage(testbed: Testbed, breakage: Breakage) -> Broken:
    """Make a breakage, call the webhook as a user would, and wait until the product says what is wrong.

    Raises LabError: it cannot be made, or the line does not come (UMB861). It is then broken and can be mended.
    """
    check(testbed, breakage)
    watch = LogWatch(testbed, breakage.speaker, breakage.code)
    _remember(testbed.lab, breakage.name, {})
    memory = breakage.break_(testbed)
    _remember(testbed.lab, breakage.name, memory)
    with WebhookCalls(testbed, breakage, memory) as calls:
        line = observe(testbed, breakage, watch)
        return Broken(calls.first(), line)


def observe(testbed: Testbed, breakage: Breakage, watch: LogWatch) -> str:
    """Wait for the line with the breakage's code."""

    def look() -> str:
        found = _asked(testbed, breakage) if breakage.ask is not None else watch.fresh()
        if found is None:
            raise NotYet(f"no new line with {breakage.code}")
        return found

    try:
        return wait(f"{breakage.code} in the {breakage.speaker.value}'s words", look, breakage.seconds)
    except LabError as error:
        remedy = f"mend it: umbilical lab mend {breakage.name}; and report this"
        raise LabError("UMB861", f"{breakage.name} was not recognised", error.why, remedy) from None


def mend_breakage(testbed: Testbed, name: str) -> WebhookVerdict:
    """Take a breakage back. Raises LabError: it is not broken (UMB863), or calls do not work again (UMB864)."""
    breakages = testbed.lab.breakages()
    if name not in breakages:
        known = ", ".join(active_breakages(testbed.lab)) or "nothing"
        raise LabError("UMB863", f"{name} is not broken", f"broken is: {known}", "umbilical lab status")
    memory = _entry(breakages, name).get("memory", {})
    registry.find(name).mend(testbed, memory if isinstance(memory, dict) else {})
    _forget(testbed.lab, name)
    return wait_until_well(testbed)


def wait_until_well(testbed: Testbed) -> WebhookVerdict:
    """Other breakages may still be there; then a call need not come through."""
    if testbed.lab.breakages():
        return testbed.call_webhook("allow")
    try:
        testbed.server_socket()
        testbed.wait_for_agents()
        return testbed.wait_for(CallResult.ALLOWED, "allow", WELL_SECONDS)
    except LabError as error:
        raise LabError("UMB864", "mended, but not well again", error.why, error.remedy) from None


def _asked(testbed: Testbed, breakage: Breakage) -> str | None:
    assert breakage.ask is not None
    lines = breakage.ask(testbed).splitlines()
    return next((line for line in lines if breakage.code in line), None)


def _entry(breakages: Mapping[str, object], name: str) -> dict[str, Any]:
    entry = breakages[name]
    return entry if isinstance(entry, dict) else {}


def _remember(lab: Lab, name: str, memory: Memory) -> None:
    breakages = lab.breakages()
    number = _entry(breakages, name)["number"] if name in breakages else 1 + _highest(breakages)
    lab.set_breakages({**breakages, name: {"number": number, "memory": memory}})


def _highest(breakages: Mapping[str, object]) -> int:
    return max((int(_entry(breakages, name).get("number", 0)) for name in breakages), default=0)


def _forget(lab: Lab, name: str) -> None:
    lab.set_breakages({key: value for key, value in lab.breakages().items() if key != name})


def run_breakage(testbed: Testbed, name: str) -> None:
    """Bring everything up, break one thing, and mend it."""
    breakage = registry.find(name)
    webhook_through_tunnel.prepare(testbed)
    webhook_through_tunnel.set_up_tunnel(testbed)
    with testbed.transcript.step("through the tunnel the webhook allows"):
        testbed.transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        testbed.transcript.shows(call=CallResult.ALLOWED)
    show_break(testbed, breakage)
    show_mend(testbed, name)


def show_break(testbed: Testbed, breakage: Breakage) -> None:
    transcript = testbed.transcript
    with transcript.step(f"{breakage.name}: {breakage.summary}"):
        transcript.saw(f"a user would see: {breakage.seen}")
        broken = make_breakage(testbed, breakage)
        if broken.verdict is not None:
            transcript.saw(f"the call is {broken.verdict.call.value}: {broken.verdict.text}")
            transcript.shows(call=broken.verdict.call)
        elif breakage.stops_calls:
            transcript.saw("a call hangs, and is not over yet")
            transcript.shows(call=CallResult.UNREACHABLE)
        transcript.saw(f"recognised by {breakage.code}: {broken.line}")


def show_mend(testbed: Testbed, name: str) -> None:
    transcript = testbed.transcript
    with transcript.step(f"{name} is mended"):
        verdict = mend_breakage(testbed, name)
        still = active_breakages(testbed.lab)
        transcript.saw(f"the call is {verdict.call.value}: {verdict.text}")
        if still:
            transcript.saw(f"still broken: {', '.join(still)}")
        transcript.shows(call=verdict.call)
