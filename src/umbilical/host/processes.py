"""Child processes that log to a file: start, wait until ready, stop, clean up. Also SIGINT, SIGTERM and SIGHUP, delayed
until cleanup is possible."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from umbilical.fault import HostError

STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.05
LOG_LINES_SHOWN: Final = 5


class Child:
    """One running program. Leaving its `with` block stops it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: number of the signal that ended it."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the exit and return its code. Raises HostError: it still runs."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise self._trouble(f"did not exit within {timeout_seconds:g} s") from error

    def wait_ready(
        self, is_ready: Callable[[], bool], timeout_seconds: float, poll_seconds: float = POLL_SECONDS
    ) -> None:
        """Poll until `is_ready` returns True; an `OSError` counts as not ready: the port may not listen yet.

        Raises HostError: the process exited, or the timeout passed; the message holds the last lines of its log.
        """
        deadline = time.monotonic() + timeout_seconds
        while not _answers(is_ready):
            if not self.is_running:
                raise self._trouble(f"exited with {self.exit_code} before it was ready")
            if time.monotonic() >= deadline:
                raise self._trouble(f"was not ready after {timeout_seconds:g} s")
            time.sleep(poll_seconds)

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Send SIGTERM, after the timeout SIGKILL; return the exit code. Idempotent."""
        if self.is_running:
            self._process.terminate()
            try:
                return self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                return self.kill()
        return self._process.wait()

    def kill(self) -> int:
        """Send SIGKILL and return the exit code."""
        self._process.kill()
        return self._process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _trouble(self, what: str) -> HostError:
        lines = self.log_text().splitlines()[-LOG_LINES_SHOWN:]
        why = " | ".join(line.strip() for line in lines) or "its log is empty"
        return HostError("UMB802", f"{self.name} (pid {self.pid}) {what}", why, f"tail {self.log}")


def start(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    *,
    name: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start a program with both outputs appended to `log` (mode 0600: programs may print secrets).

    It gets its own session, so that Ctrl-C in the terminal reaches only us and we can stop it in order.

    Raises HostError: the program does not exist or is not executable.
    """
    title = name or Path(command[0]).name
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=None if environment is None else {**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise _cannot_start(title, error) from error
    finally:
        os.close(descriptor)
    return Child(title, process, log)


def run(command: Sequence[str | os.PathLike[str]], timeout_seconds: float, stdin: bytes | None = None) -> str:
    """Run a program and return its standard output. Raises HostError: it did not start, failed or timed out."""
    title = Path(command[0]).name
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_seconds, check=False)
    except OSError as error:
        raise _cannot_start(title, error) from error
    except subprocess.TimeoutExpired as error:
        raise _failed(command, f"it still ran after {timeout_seconds:g} s") from error
    if done.returncode != 0:
        raise _failed(command, done.stderr.decode(errors="replace").strip() or f"it exited with {done.returncode}")
    return done.stdout.decode()


def _answers(is_ready: Callable[[], bool]) -> bool:
    try:
        return is_ready()
    except OSError:
        return False


def _cannot_start(title: str, error: OSError) -> HostError:
    why = error.strerror or str(error)
    return HostError("UMB803", f"could not start {title}", why, f"check that it is installed: command -v {title}")


def _failed(command: Sequence[str | os.PathLike[str]], why: str) -> HostError:
    shown = " ".join(os.fspath(part) for part in command)
    return HostError("UMB804", f"{Path(command[0]).name} failed", why, f"run it by hand: {shown}")


SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Context manager that delays signals. Inside `heard()` the first signal raises KeyboardInterrupt.

    A signal outside `heard()` raises at the next `heard()` or when the context ends. Has no effect outside the main
    thread, which alone gets signals.
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
        # Delay signals again before raising: the next one must not interrupt the cleanup.
        is_heard, self._is_heard, self._has_come = self._is_heard, False, True
        if is_heard:
            raise KeyboardInterrupt
