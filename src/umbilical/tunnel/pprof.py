"""`/debug/pprof/`: sampled stacks, stacks of threads and tasks, objects by type.

The paths are Go's; the contents are plain text that `go tool pprof` cannot read.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from types import FrameType
from typing import Final

SAMPLES_PER_SECOND: Final = 100
DEFAULT_SECONDS: Final = 30.0
MAX_SECONDS: Final = 300.0
_TYPES_SHOWN: Final = 60

_INDEX: Final = b"""<html>
<head><title>/debug/pprof/</title></head>
<body>
<p>Plain text; <code>go tool pprof</code> cannot read it.</p>
<ul>
<li><a href="profile?seconds=5">profile</a>: stacks of all threads, 100 samples per second for <code>seconds</code>,
as folded stacks for flame graphs (one line per stack with its count)</li>
<li><a href="goroutine">goroutine</a>: stacks of all threads and asyncio tasks</li>
<li><a href="heap">heap</a>: objects that the garbage collector tracks, by type</li>
</ul>
</body>
</html>
"""


class Profiler:
    """Takes profiles; one CPU profile at a time."""

    def __init__(self) -> None:
        self._is_sampling = False

    async def take(self, name: str, seconds: str) -> tuple[int, bytes]:
        """Return an HTTP status and a text; `name` is what follows `/debug/pprof/` in the path."""
        match name:
            case "":
                return 200, _INDEX
            case "profile":
                return await self._profile(seconds)
            case "goroutine":
                return 200, stacks().encode("utf-8", "replace")
            case "heap":
                return 200, objects_by_type().encode("utf-8", "replace")
            case "symbol":
                return 200, b"num_symbols: 0\n"  # Go's answer where addresses cannot be looked up
            case "trace":
                return 501, b"execution traces exist in Go only\n"
        return 404, b"Unknown profile\n"

    async def _profile(self, seconds: str) -> tuple[int, bytes]:
        if self._is_sampling:
            return 500, b"Could not enable CPU profiling: a profile is already being taken\n"
        self._is_sampling = True
        stop = threading.Event()
        try:
            folded = await asyncio.to_thread(sample_stacks, _duration(seconds), stop)
        finally:
            stop.set()  # the thread must not outlive a client that went away
            self._is_sampling = False
        return 200, folded.encode("utf-8", "replace")


def _duration(seconds: str) -> float:
    try:
        wanted = float(seconds)
    except ValueError:
        return DEFAULT_SECONDS
    return min(wanted, MAX_SECONDS) if wanted > 0 else DEFAULT_SECONDS


def sample_stacks(seconds: float, stop: threading.Event) -> str:
    """Sample every other thread; return folded stacks, the most frequent first."""
    counts: Counter[str] = Counter()
    own = threading.get_ident()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.wait(1 / SAMPLES_PER_SECOND):
        for thread, frame in sys._current_frames().items():
            if thread != own:
                counts[_folded(frame)] += 1
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _folded(frame: FrameType | None) -> str:
    names: list[str] = []
    while frame is not None:
        names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return ";".join(reversed(names))


def stacks() -> str:
    """Return the stacks of all threads and of all asyncio tasks of this loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines = [line for frame in task.get_stack() for line in traceback.format_stack(frame)[-1:]]
        parts.append(f"task {task.get_name()} {task.get_coro()!r}:\n{''.join(lines)}")
    return "\n".join(parts)


def objects_by_type() -> str:
    counts = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
    lines = [f"{count:10d} {name}" for name, count in counts.most_common(_TYPES_SHOWN)]
    return "\n".join([f"{sum(counts.values()):10d} total", *lines, ""])
