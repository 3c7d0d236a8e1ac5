"""The program that holds a pod's namespaces: it sleeps for ever. An ELF file of a hundred-odd bytes, written here.

It needs no compiler and has nothing to update. Signals other than SIGKILL do not reach it, since it is the first
process of its namespace and has no handlers; containerd ends sandboxes by SIGKILL.
"""

import platform
import struct
from typing import Final

from umbilical.fault import LabError

REFERENCE: Final = "localhost/pause:1"
PROGRAM: Final = "pause"

_BASE: Final = 0x400000
_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_IDENT: Final = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_EXECUTABLE: Final = 2
_LOAD: Final = 1
_READ_AND_EXECUTE: Final = 5
_PAGE: Final = 0x1000
# Machine number of ELF, and a loop around the system call that waits: pause (34) on x86-64; 64-bit ARM has no
# such call, so ppoll (73) over no files without a timeout.
_MACHINES: Final = {
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    "aarch64": (
        183,
        struct.pack("<7I", 0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800928, 0xD4000001, 0x17FFFFFA),
    ),
}


def program(machine: str | None = None) -> bytes:
    """Make the program for a machine, by default this one.

    Raises:
        LabError: UMB845, its instructions are not known here.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise LabError(
            "UMB845",
            f"no pause program for {machine}",
            f"the kubelet runner knows {' and '.join(_MACHINES)}",
            "use the process runner: --runner process",
        )
    number, code = _MACHINES[machine]
    return _elf(number, code)


def _elf(machine: int, code: bytes) -> bytes:
    start = _ELF_HEADER.size + _PROGRAM_HEADER.size
    size = start + len(code)
    header = _ELF_HEADER.pack(
        _IDENT, _EXECUTABLE, machine, 1, _BASE + start, _ELF_HEADER.size, 0, 0,
        _ELF_HEADER.size, _PROGRAM_HEADER.size, 1, 0, 0, 0,
    )  # fmt: skip
    segment = _PROGRAM_HEADER.pack(_LOAD, _READ_AND_EXECUTE, 0, _BASE, _BASE, size, size, _PAGE)
    return header + segment + code
