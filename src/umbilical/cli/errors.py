"""How our own commands fail: three lines with a code from docs/errors.md, and an exit status that scripts can read."""

from typing import Final

from umbilical.fault import Fault
from umbilical.hardway.errors import StageTimeout, Unsafe
from umbilical.tunnel.errors import StartupError

FINDINGS: Final = 1
USAGE: Final = 2
CONFIGURATION: Final = 3
INFRASTRUCTURE: Final = 4
UNSAFE: Final = 7
INTERRUPTED: Final = 8
TIMED_OUT: Final = 9
INTERNAL: Final = 10

_STATUS_BY_CODE: Final = {
    "UMB001": USAGE,
    "UMB023": INFRASTRUCTURE,
    "UMB099": INTERNAL,
    "UMB175": INFRASTRUCTURE,
    "UMB176": INFRASTRUCTURE,
    "UMB201": CONFIGURATION,
    "UMB205": CONFIGURATION,
    "UMB206": CONFIGURATION,
    "UMB208": CONFIGURATION,
    "UMB347": CONFIGURATION,
    # A directory, or options, with which a command for hosted control planes has nothing to begin.
    "UMB565": CONFIGURATION,
    "UMB710": USAGE,
    # A check of a stage failed; a stage was asked for before what it builds on.
    "UMB723": FINDINGS,
    "UMB724": USAGE,
    "UMB733": CONFIGURATION,
    "UMB711": CONFIGURATION,
    "UMB573": CONFIGURATION,
    "UMB576": TIMED_OUT,
    "UMB577": CONFIGURATION,
    "UMB578": CONFIGURATION,
    "UMB521": CONFIGURATION,
    "UMB531": CONFIGURATION,
    "UMB532": CONFIGURATION,
    "UMB533": CONFIGURATION,
    "UMB534": CONFIGURATION,
    "UMB535": CONFIGURATION,
    "UMB536": CONFIGURATION,
    "UMB537": CONFIGURATION,
    "UMB547": CONFIGURATION,
    "UMB548": CONFIGURATION,
    # A spec, a manifest or a directory of certificates that cannot be used.
    "UMB550": CONFIGURATION,
    "UMB551": CONFIGURATION,
    "UMB552": CONFIGURATION,
    "UMB553": CONFIGURATION,
    "UMB554": CONFIGURATION,
    "UMB601": CONFIGURATION,
    "UMB602": CONFIGURATION,
    # A cluster's file that cannot be used, or none.
    "UMB700": CONFIGURATION,
    "UMB701": CONFIGURATION,
    "UMB702": CONFIGURATION,
    # A release that is none, or lacks what is needed of it; machine configs that cannot be read.
    "UMB715": CONFIGURATION,
    "UMB716": CONFIGURATION,
    "UMB717": CONFIGURATION,
    "UMB718": CONFIGURATION,
    "UMB719": CONFIGURATION,
    # A word that nobody knows: something to explain, a lesson.
    "UMB750": USAGE,
    "UMB751": USAGE,
    # A lesson that does not fit the directory.
    "UMB752": CONFIGURATION,
    "UMB753": CONFIGURATION,
    "UMB754": CONFIGURATION,
    "UMB801": CONFIGURATION,
    # A lab that cannot be as it was asked for: its name, its networks; a story that nobody knows.
    "UMB810": CONFIGURATION,
    "UMB811": CONFIGURATION,
    "UMB812": CONFIGURATION,
    "UMB851": CONFIGURATION,
    "UMB852": CONFIGURATION,
    "UMB853": CONFIGURATION,
    "UMB854": CONFIGURATION,
    "UMB860": CONFIGURATION,
    "UMB863": CONFIGURATION,
    "UMB870": CONFIGURATION,
    # A wait of a story, or of a fault for its sign, that was in vain.
    "UMB850": TIMED_OUT,
    # What a stage waited for in vain, and what it refuses because it could not be taken back.
    "UMB725": TIMED_OUT,
    "UMB731": TIMED_OUT,
    "UMB740": TIMED_OUT,
    "UMB726": UNSAFE,
    "UMB727": UNSAFE,
    "UMB745": UNSAFE,
    "UMB762": UNSAFE,
}
_STATUS_BY_GROUP: Final = {"UMB0": CONFIGURATION, "UMB1": CONFIGURATION}


def fault_status(fault: StartupError | Fault) -> int:
    """A wait that was in vain, and what is refused since it could not be taken back, tell so by their kind."""
    if isinstance(fault, StageTimeout):
        return TIMED_OUT
    if isinstance(fault, Unsafe):
        return UNSAFE
    return exit_status(fault.code)


def three_lines(fault: StartupError | Fault) -> str:
    if isinstance(fault, Fault):
        return str(fault)
    return f"{fault.code} {fault.what}\n  why: {fault.why}\n  next: {fault.next}"


def exit_status(code: str) -> int:
    """What is wrong with the words is 2, with a file or a combination of options 3, with the world outside 4."""
    return _STATUS_BY_CODE.get(code) or _STATUS_BY_GROUP.get(code[:4], INFRASTRUCTURE)
