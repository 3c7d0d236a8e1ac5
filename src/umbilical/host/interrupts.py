"""Ctrl-C, a hang-up or a request to end: heard while something can be given up, and never while it is cleaned up.

A plain KeyboardInterrupt can come between making a thing and the `try` that removes it, and into the removing itself.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """As a context: signals are only remembered. Inside `heard()` the first one raises KeyboardInterrupt.

    One that came while nobody heard it raises when the context ends. Does nothing outside the main thread, which has
    no signals.
    """

    def __init__(self) -> None:
        self._is_heard = False
        self._has_come = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._has_come and kind is None:
            raise KeyboardInterrupt

    @contextmanager
    def heard(self) -> Iterator[None]:
        self._is_heard = True
        try:
            if self._has_come:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_heard = False

    def _come(self, number: int, frame: FrameType | None) -> None:
        # Deaf again before it raises: the next one must not reach those who clean up after this one.
        is_heard, self._is_heard, self._has_come = self._is_heard, False, True
        if is_heard:
            raise KeyboardInterrupt
