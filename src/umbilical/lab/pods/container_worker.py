"""One container for as long as its pod lives: start, probes, the end of a run, last words, back-off, the next run."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from umbilical.fault import PodError, PodWaiting
from umbilical.lab.pods.container_plan import is_mapped
from umbilical.lab.pods.node import BACK_OFF_SECONDS, Changed
from umbilical.lab.pods.probes import Answer, Target, Verdict, ask
from umbilical.lab.pods.process import ContainerProcess, launch
from umbilical.lab.pods.spec import Container, Probe, RestartPolicy
from umbilical.lab.pods.status import CRASH_LOOP, ContainerRecord, Ended, Idle, Running
from umbilical.lab.pods.surroundings import Surroundings

# The kubelet's: 4096 bytes of the file; of a log 2048 bytes or 80 lines.
MAX_MESSAGE: Final = 4096
MAX_FROM_LOG: Final = 2048
MAX_LINES: Final = 80


def termination_message(file: Path, log: Path, exit_code: int, *, falls_back_to_log: bool) -> str:
    message = _head(file, MAX_MESSAGE)
    if message or exit_code == 0 or not falls_back_to_log:
        return message
    return "\n".join(_tail(log, MAX_FROM_LOG).splitlines()[-MAX_LINES:])


def _head(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(limit).decode(errors="replace")
    except OSError:
        return ""


def _tail(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - limit))
            return stream.read(limit).decode(errors="replace")
    except OSError:
        return ""


CAP_FACTOR: Final = 30
"""Of the first: 300 s."""
CALM_FACTOR: Final = 2
"""Of the cap: whoever ran that long begins anew."""


class BackOff:
    def __init__(self, first_seconds: float = BACK_OFF_SECONDS) -> None:
        self._first = first_seconds
        self._cap = first_seconds * CAP_FACTOR
        self._next = 0.0

    def ended_after(self, seconds: float) -> float:
        """Take note of an end after so long a run; return how long to wait."""
        if seconds >= CALM_FACTOR * self._cap:
            self._next = 0.0
        wait = self._next
        self._next = min(max(self._first, wait * 2), self._cap)
        return wait


log: Final = logging.getLogger(__name__)

# How often a container that misses something (an image, a key of a Secret) is tried again.
RETRY_SECONDS: Final = 1.0


class ContainerWorker:
    def __init__(
        self, container: Container, record: ContainerRecord, surroundings: Surroundings, changed: Changed
    ) -> None:
        self._container, self._record, self._around = container, record, surroundings
        self._changed = changed
        self._back_off = BackOff(surroundings.node.back_off_seconds)
        self._title = f"{surroundings.pod.title} {container.name}"
        self._environment: dict[str, str] = {}
        self._is_user_told = False

    async def run(self, policy: RestartPolicy) -> int:
        """Run until the policy knows no next time; return the last exit code. Cancelling stops it in order."""
        while True:
            ended = await self._run_once()
            if policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and ended.exit_code == 0):
                self._note(state=ended)
                return ended.exit_code
            self._note(last=ended)
            await self._pause(self._back_off.ended_after(ended.until - ended.since))
            self._note(restarts=self._record.restarts + 1)

    async def _run_once(self) -> Ended:
        process = await self._start()
        since = time.time()
        self._note(state=Running(since), pid=process.pid)
        log.info("%s: runs as process %d", self._title, process.pid)
        try:
            async with asyncio.TaskGroup() as group:
                probing = group.create_task(self._probe(process))
                code = await process.ended()
                probing.cancel()
        finally:
            # Also after a good end: what the first process left behind goes with it.
            await process.stop(self._around.grace_seconds)
            self._note(pid=None, is_ready=False, is_started=False)
        log.info("%s: ended with %d", self._title, code)
        return Ended(code, since, time.time(), self._last_words(code))

    async def _start(self) -> ContainerProcess:
        while True:
            try:
                plan = await self._around.plan(self._container)
                self._environment = plan.environment
                self._tell_user(plan.user)
                return await launch(plan, self._make_files())
            except PodWaiting as waiting:
                self._tell_trouble(waiting.reason, waiting)
                await asyncio.sleep(RETRY_SECONDS)
            except PodError as error:
                self._tell_trouble("RunContainerError", error)
                await asyncio.sleep(max(RETRY_SECONDS, self._back_off.ended_after(0.0)))

    def _tell_user(self, user: int) -> None:
        if not self._is_user_told and not is_mapped("uid", user):
            log.info("%s: runs as root instead of user %d, whom a lab without root does not have", self._title, user)
        self._is_user_told = True

    def _make_files(self) -> Path:
        """Make the file for last words empty; return the log of the run that begins."""
        words = self._around.termination_log(self._container)
        words.parent.mkdir(parents=True, exist_ok=True)
        words.write_bytes(b"")
        # Whoever the container runs as may say why it ends.
        words.chmod(0o666)
        path = self._log()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _log(self) -> Path:
        return self._around.log(self._container, self._record.restarts)

    def _last_words(self, code: int) -> str:
        file = self._around.termination_log(self._container)
        return termination_message(file, self._log(), code, falls_back_to_log=self._container.log_ends_message)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            text = f"back-off {seconds:g}s restarting failed container={self._title}"
            self._note(state=Idle(CRASH_LOOP, text))
            log.info("%s: %s", self._title, text)
            await asyncio.sleep(seconds)

    async def _probe(self, process: ContainerProcess) -> None:
        """Ask the container's probes until cancelled."""
        target = self._target(process)
        if self._container.startup is not None and not await self._has_started(self._container.startup, target):
            await self._end(process, "startup")
            return
        self._note(is_started=True, is_ready=self._container.readiness is None)
        async with asyncio.TaskGroup() as group:
            if self._container.liveness is not None:
                group.create_task(self._watch_liveness(self._container.liveness, target, process))
            if self._container.readiness is not None:
                group.create_task(self._watch_readiness(self._container.readiness, target))

    async def _has_started(self, probe: Probe, target: Target) -> bool:
        async for verdict, _ in verdicts(probe, target):
            if verdict is not None:
                return verdict
        return False

    async def _watch_liveness(self, probe: Probe, target: Target, process: ContainerProcess) -> None:
        async for verdict, answer in verdicts(probe, target):
            if verdict is False:
                log.warning("%s: liveness probe failed: %s", self._title, answer.text)
                await self._end(process, "liveness")
                return

    async def _watch_readiness(self, probe: Probe, target: Target) -> None:
        async for verdict, _ in verdicts(probe, target):
            if (verdict is True) != self._record.is_ready:
                log.info("%s: is %s", self._title, "ready" if verdict else "not ready any more")
                self._note(is_ready=verdict is True)

    async def _end(self, process: ContainerProcess, probe: str) -> None:
        log.warning("%s: failed its %s probe, will be restarted", self._title, probe)
        await process.stop(self._around.grace_seconds)

    def _target(self, process: ContainerProcess) -> Target:
        around = self._around
        address = around.addresses[0] if around.addresses else around.node.address
        # The container's root and network are not the node's; its user is root's choice, so probes run as root.
        enter = ("nsenter", f"--target={process.pid}", "--mount", "--uts", "--net", "--root", "--wd", "--")
        return Target(address, dict(self._container.ports), enter, self._environment)

    def _tell_trouble(self, reason: str, error: PodError) -> None:
        state = Idle(reason, f"{error.what}: {error.why}")
        if state != self._record.state:
            log.warning("%s: %s", self._title, error.brief)
            self._note(state=state)

    def _note(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self._record, name, value)
        self._changed()


async def verdicts(probe: Probe, target: Target) -> AsyncIterator[tuple[bool | None, Answer]]:
    """Ask for ever, at the probe's pace; yield the verdict after each answer."""
    verdict = Verdict(probe.success_threshold, probe.failure_threshold)
    await asyncio.sleep(probe.initial_delay_seconds)
    while True:
        begun = time.monotonic()
        answer = await ask(probe, target)
        yield verdict.saw(answer.is_good), answer
        await asyncio.sleep(max(0.0, probe.period_seconds - (time.monotonic() - begun)))
