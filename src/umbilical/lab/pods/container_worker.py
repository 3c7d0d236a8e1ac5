"""Runs one container during the life of its pod: start, probes, exit, termination message, back-off, restart."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from umbilical.fault import PodError, PodWaiting
from umbilical.lab.pods.container_plan import is_mapped
from umbilical.lab.pods.node import BACK_OFF_SECONDS, Changed
from umbilical.lab.pods.pod_context import PodContext
from umbilical.lab.pods.probes import PodProbeResult, PodProbeTarget, PodProbeVerdict, run_probe
from umbilical.lab.pods.process import ContainerProcess, launch
from umbilical.lab.pods.spec import Container, PodProbe, RestartPolicy
from umbilical.lab.pods.status import CRASH_LOOP, ContainerRecord, Ended, Idle, Running

# The kubelet's limits: 4096 bytes of the file; 2048 bytes or 80 lines of a log.
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
"""Maximum pause, as a multiple of the first: 300 s."""
CALM_FACTOR: Final = 2
"""A run of this multiple of the maximum pause resets the back-off."""


class BackOff:
    def __init__(self, first_seconds: float = BACK_OFF_SECONDS) -> None:
        self._first = first_seconds
        self._cap = first_seconds * CAP_FACTOR
        self._next = 0.0

    def ended_after(self, seconds: float) -> float:
        """Record the end of a run of this length; return the pause before the next."""
        if seconds >= CALM_FACTOR * self._cap:
            self._next = 0.0
        wait = self._next
        self._next = min(max(self._first, wait * 2), self._cap)
        return wait


log: Final = logging.getLogger(__name__)

# Retry interval while something is missing: an image, a key of a Secret.
RETRY_SECONDS: Final = 1.0


class ContainerWorker:
    def __init__(self, container: Container, record: ContainerRecord, context: PodContext, changed: Changed) -> None:
        self._container, self._record, self._context = container, record, context
        self._changed = changed
        self._back_off = BackOff(context.node.back_off_seconds)
        self._title = f"{context.pod.title} {container.name}"
        self._environment: dict[str, str] = {}
        self._is_user_logged = False

    async def run(self, policy: RestartPolicy) -> int:
        """Run until the policy allows no restart; return the last exit code. Cancelling stops it in order."""
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
        log.info("%s: started, pid %d", self._title, process.pid)
        try:
            async with asyncio.TaskGroup() as group:
                probing = group.create_task(self._probe(process))
                code = await process.ended()
                probing.cancel()
        finally:
            # Also after a normal exit: stop what the first process left behind.
            await process.stop(self._context.grace_seconds)
            self._note(pid=None, is_ready=False, is_started=False)
        log.info("%s: exited with %d", self._title, code)
        return Ended(code, since, time.time(), self._termination_message(code))

    async def _start(self) -> ContainerProcess:
        while True:
            try:
                plan = await self._context.plan(self._container)
                self._environment = plan.environment
                self._log_user(plan.user)
                return await launch(plan, self._make_files())
            except PodWaiting as waiting:
                self._report_trouble(waiting.reason, waiting)
                await asyncio.sleep(RETRY_SECONDS)
            except PodError as error:
                self._report_trouble("RunContainerError", error)
                await asyncio.sleep(max(RETRY_SECONDS, self._back_off.ended_after(0.0)))

    def _log_user(self, user: int) -> None:
        if not self._is_user_logged and not is_mapped("uid", user):
            log.info(
                "%s: runs as root instead of user %d, which is not mapped in a lab without root", self._title, user
            )
        self._is_user_logged = True

    def _make_files(self) -> Path:
        """Create an empty file for the termination message; return the log file of the new run."""
        message = self._context.termination_log(self._container)
        message.parent.mkdir(parents=True, exist_ok=True)
        message.write_bytes(b"")
        # Any user of the container may write it.
        message.chmod(0o666)
        path = self._log()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _log(self) -> Path:
        return self._context.log(self._container, self._record.restarts)

    def _termination_message(self, code: int) -> str:
        file = self._context.termination_log(self._container)
        return termination_message(file, self._log(), code, falls_back_to_log=self._container.log_ends_message)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            text = f"back-off {seconds:g}s restarting failed container={self._title}"
            self._note(state=Idle(CRASH_LOOP, text))
            log.info("%s: %s", self._title, text)
            await asyncio.sleep(seconds)

    async def _probe(self, process: ContainerProcess) -> None:
        """Run the container's probes until cancelled."""
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

    async def _has_started(self, probe: PodProbe, target: PodProbeTarget) -> bool:
        async for verdict, _ in verdicts(probe, target):
            if verdict is not None:
                return verdict
        return False

    async def _watch_liveness(self, probe: PodProbe, target: PodProbeTarget, process: ContainerProcess) -> None:
        async for verdict, answer in verdicts(probe, target):
            if verdict is False:
                log.warning("%s: liveness probe failed: %s", self._title, answer.text)
                await self._end(process, "liveness")
                return

    async def _watch_readiness(self, probe: PodProbe, target: PodProbeTarget) -> None:
        async for verdict, _ in verdicts(probe, target):
            if (verdict is True) != self._record.is_ready:
                log.info("%s: is %s", self._title, "ready" if verdict else "not ready")
                self._note(is_ready=verdict is True)

    async def _end(self, process: ContainerProcess, probe: str) -> None:
        log.warning("%s: %s probe failed too often; restarting", self._title, probe)
        await process.stop(self._context.grace_seconds)

    def _target(self, process: ContainerProcess) -> PodProbeTarget:
        context = self._context
        address = context.addresses[0] if context.addresses else context.node.address
        # Exec probes run in the container's namespaces, as root.
        enter = ("nsenter", f"--target={process.pid}", "--mount", "--uts", "--net", "--root", "--wd", "--")
        return PodProbeTarget(address, dict(self._container.ports), enter, self._environment)

    def _report_trouble(self, reason: str, error: PodError) -> None:
        state = Idle(reason, f"{error.what}: {error.why}")
        if state != self._record.state:
            log.warning("%s: %s", self._title, error.brief)
            self._note(state=state)

    def _note(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self._record, name, value)
        self._changed()


async def verdicts(probe: PodProbe, target: PodProbeTarget) -> AsyncIterator[tuple[bool | None, PodProbeResult]]:
    """Probe forever at the probe's period; yield the verdict after each result."""
    verdict = PodProbeVerdict(probe.success_threshold, probe.failure_threshold)
    await asyncio.sleep(probe.initial_delay_seconds)
    while True:
        begun = time.monotonic()
        answer = await run_probe(probe, target)
        yield verdict.saw(answer.is_good), answer
        await asyncio.sleep(max(0.0, probe.period_seconds - (time.monotonic() - begun)))
