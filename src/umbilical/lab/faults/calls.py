"""What users do meanwhile: calls to the webhook beside the wait for the product's own words; they may hang."""

import threading
from types import TracebackType
from typing import Final

from umbilical.fault import LabError
from umbilical.lab.faults.fault import Fault, Memory, Speaker
from umbilical.lab.scene import Scene, Verdict
from umbilical.lab.story import Call

# Enough for a call that comes through or is refused; one that hangs is told of as such.
FIRST_SECONDS: Final = 3.0
CALLS_AT_ONCE: Final = 20


class Calls:
    """One call, and beside it many more if the fault needs traffic, in threads until the end of the block."""

    def __init__(self, scene: Scene, fault: Fault, memory: Memory) -> None:
        self._scene = scene
        self._fault = fault
        self._verdict = Verdict(Call.UNREACHABLE, str(memory["seen"])) if "seen" in memory else None
        self._is_over = threading.Event()
        self._has_first = threading.Event()
        # Nobody waits for a call that hangs: kube-apiserver tries a webhook three times.
        self._threads = [threading.Thread(target=self._call, name="call", daemon=True)]
        if fault.needs_traffic:
            self._threads.append(threading.Thread(target=self._make_many, name="traffic", daemon=True))

    def __enter__(self) -> "Calls":
        if self._fault.speaker is not Speaker.COMMAND:
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def first(self) -> Verdict | None:
        """Return how the first call ended; None if it still hangs, or none is made."""
        if self._fault.speaker is not Speaker.COMMAND:
            self._has_first.wait(FIRST_SECONDS)
        return self._verdict

    def _call(self) -> None:
        try:
            if self._verdict is None:
                self._verdict = self._scene.judge("allow")
            self._has_first.set()
        except (LabError, OSError):
            return  # the lab is being taken down

    def _make_many(self) -> None:
        while not self._is_over.is_set():
            try:
                self._scene.call_times(CALLS_AT_ONCE)
            except (LabError, OSError):
                self._is_over.wait(0.2)  # one of them failed, as can be expected
