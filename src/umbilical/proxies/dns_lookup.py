"""What a lookup can come to, whoever was asked."""

from enum import Enum
from typing import Final, Protocol

from umbilical.dialer.failure import DialFailed, Reason


class Way(Enum):
    """Who was asked; values as the metrics spell them."""

    GUEST = "guest"
    SERVICE = "service"
    MANAGEMENT = "management"


class Result(Enum):
    """What came of it; values as the metrics spell them."""

    OK = "ok"
    ABSENT = "nxdomain"
    """Whoever was asked says so: the name does not exist, or has no address."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    CACHED = "cached"


class LookupFailed(DialFailed):
    """There is no address, and so no connection."""

    def __init__(self, result: Result, hop: str, text: str) -> None:
        super().__init__(Reason.NAME, hop, text)
        self.result: Final = result

    @property
    def is_answer(self) -> bool:
        """Whether somebody answered: then the way there works."""
        return self.result is Result.ABSENT


class LookupObserver(Protocol):
    def looked_up(self, way: str, result: str) -> None: ...
