"""Make and repair breakages.

A breakage is recorded in the lab's state before it is made, so that any terminal can repair it; the last one is
repaired first. After a break the webhook is called, and the logs are searched for the line with the breakage's code.
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

# Enough for a call that succeeds or is refused; a longer one is reported as hanging.
FIRST_SECONDS: Final = 3.0
CALLS_AT_ONCE: Final = 20


class WebhookCalls:
    """Calls the webhook once, and repeatedly if the breakage needs traffic, in threads until the end of the block."""

    def __init__(self, testbed: Testbed, breakage: Breakage, memory: Memory) -> None:
        self._testbed = testbed
        self._breakage = breakage
        self._verdict = WebhookVerdict(CallResult.UNREACHABLE, str(memory["seen"])) if "seen" in memory else None
        self._is_over = threading.Event()
        self._has_first = threading.Event()
        # Daemon threads: a call may hang for long, since kube-apiserver tries a webhook three times.
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
        """Return the result of the first call; None if it hangs, or no call is made."""
        if self._breakage.speaker is not Speaker.COMMAND:
            self._has_first.wait(FIRST_SECONDS)
        return self._verdict

    def _call(self) -> None:
        try:
            if self._verdict is None:
                self._verdict = self._testbed.call_webhook("allow")
            self._has_first.set()
        except (LabError, OSError):
            return  # the lab is being removed

    def _make_many(self) -> None:
        while not self._is_over.is_set():
            try:
                self._testbed.call_times(CALLS_AT_ONCE)
            except (LabError, OSError):
                self._is_over.wait(0.2)  # a call failed, as expected


class LogWatch:
    """Finds new log lines with a code; create it before the breakage.

    Old lines are recognised by their text, which has microseconds: file positions are not reliable, because a kubelet
    deletes the logs of removed pods.
    """

    def __init__(self, testbed: Testbed, speaker: Speaker, code: str) -> None:
        self._testbed = testbed
        self._speaker = speaker
        self._code = code
        self._before = set(self._lines())

    def fresh(self) -> str | None:
        """Return the first new line, with its pod's name in front."""
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


# Rejected agents retry with back-off, after 30 s at most.
RECOVERY_SECONDS: Final = 90.0


@dataclass(frozen=True)
class Broken:
    verdict: WebhookVerdict | None
    """Result of a webhook call; None if it hangs or no call is made."""
    line: str
    """The line with the breakage's code."""


def active_breakages(lab: Lab) -> list[str]:
    """Return the names of the current breakages, oldest first."""
    breakages = lab.breakages()
    return sorted(breakages, key=lambda name: int(_entry(breakages, name).get("number", 0)))


def check(testbed: Testbed, breakage: Breakage) -> None:
    """Check before anything changes. Raises LabError: made already, no tunnel, or a program without our codes."""
    if breakage.name in testbed.lab.breakages():
        why = "it was made before and not repaired"
        raise LabError("UMB862", f"{breakage.name} was not made again", why, f"umbilical lab mend {breakage.name}")
    testbed.tunnel  # noqa: B018 - raises without a tunnel
    if not testbed.lab.breakages() and server_pid(testbed) is None:
        why = "no server is running: it was removed, or did not start"
        raise LabError("UMB862", f"{breakage.name} was not made", why, "umbilical lab status")
    images = {Speaker.SERVER: testbed.options.server_image, Speaker.AGENTS: testbed.options.agent_image}
    if images.get(breakage.speaker, OURS) != OURS:
        why = f"{images[breakage.speaker]} does not print our error codes"
        remedy = "use a lab with our programs: umbilical lab run --keep webhook-through-tunnel"
        raise LabError("UMB862", f"{breakage.name} was not made", why, remedy)


def make_breakage(testbed: Testbed, breakage: Breakage) -> Broken:
    """Make a breakage, call the webhook, and wait until the product reports the breakage.

    Raises LabError: it was not made (UMB862), or it was made and not reported (UMB861).
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
    """Wait for the line with the breakage's code. Raises LabError: it did not come (UMB861)."""

    def look() -> str:
        found = _asked(testbed, breakage) if breakage.ask is not None else watch.fresh()
        if found is None:
            raise NotYet(f"no new line with {breakage.code}")
        return found

    try:
        return wait(f"{breakage.code} from the {breakage.speaker.value}", look, breakage.seconds)
    except LabError as error:
        remedy = f"umbilical lab mend {breakage.name}; then report this bug"
        raise LabError("UMB861", f"{breakage.name} was not reported by the product", error.why, remedy) from None


def mend_breakage(testbed: Testbed, name: str) -> WebhookVerdict:
    """Repair a breakage. Raises LabError: it is not made (UMB863), or calls still fail afterwards (UMB864)."""
    breakages = testbed.lab.breakages()
    if name not in breakages:
        known = ", ".join(active_breakages(testbed.lab)) or "none"
        raise LabError("UMB863", f"{name} was not repaired", f"current breakages: {known}", "umbilical lab status")
    memory = _entry(breakages, name).get("memory", {})
    registry.find(name).mend(testbed, memory if isinstance(memory, dict) else {})
    _forget(testbed.lab, name)
    return wait_until_recovered(testbed)


def wait_until_recovered(testbed: Testbed) -> WebhookVerdict:
    """Wait until a call succeeds; with other breakages left, return the result of one call."""
    if testbed.lab.breakages():
        return testbed.call_webhook("allow")
    try:
        testbed.server_socket()
        testbed.wait_for_agents()
        return testbed.wait_for(CallResult.ALLOWED, "allow", RECOVERY_SECONDS)
    except LabError as error:
        raise LabError("UMB864", "calls still failed after the repair", error.why, error.remedy) from None


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
    """Set up a tunnel, make one breakage, and repair it."""
    breakage = registry.find(name)
    webhook_through_tunnel.prepare(testbed)
    webhook_through_tunnel.set_up_tunnel(testbed)
    with testbed.transcript.step("through the tunnel the webhook allows a request"):
        testbed.transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        testbed.transcript.shows(call=CallResult.ALLOWED)
    show_break(testbed, breakage)
    show_mend(testbed, name)


def show_break(testbed: Testbed, breakage: Breakage) -> None:
    transcript = testbed.transcript
    with transcript.step(f"{breakage.name}: {breakage.summary}"):
        transcript.saw(f"what a user sees: {breakage.seen}")
        broken = make_breakage(testbed, breakage)
        if broken.verdict is not None:
            transcript.saw(f"the call is {broken.verdict.call.value}: {broken.verdict.text}")
            transcript.shows(call=broken.verdict.call)
        elif breakage.stops_calls:
            transcript.saw("the call hangs")
            transcript.shows(call=CallResult.UNREACHABLE)
        transcript.saw(f"reported with {breakage.code}: {broken.line}")


def show_mend(testbed: Testbed, name: str) -> None:
    transcript = testbed.transcript
    with transcript.step(f"repair {name}"):
        verdict = mend_breakage(testbed, name)
        still = active_breakages(testbed.lab)
        transcript.saw(f"the call is {verdict.call.value}: {verdict.text}")
        if still:
            transcript.saw(f"remaining breakages: {', '.join(still)}")
        transcript.shows(call=verdict.call)
