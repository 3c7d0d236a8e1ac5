"""SIGTERM and SIGINT: the first asks, the second insists."""

import asyncio
import signal
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """Use within a running loop; `close` gives the signals back."""

    def __init__(self) -> None:
        self.first: Final = asyncio.Event()
        self.second: Final = asyncio.Event()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._came)

    def _came(self) -> None:
        if self.first.is_set():
            self.second.set()
        self.first.set()

    def close(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
