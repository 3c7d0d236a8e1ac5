"""The shared libraries of this machine's programs, for images that have such a program."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from umbilical.host.processes import run
from umbilical.lab.kubelet.image_archive import Entry

LDD_SECONDS: Final = 30.0
# `libmnl.so.0 => /lib/.../libmnl.so.0 (0x...)`, and the loader alone: `/lib64/ld-linux-x86-64.so.2 (0x...)`.
_PLACE: Final = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


def library_entries(programs: Iterable[Path]) -> list[Entry]:
    """List the libraries of some programs, and the loader, at the places where the loader looks for them."""
    found = {place for program in programs for place in places(run(["ldd", program], LDD_SECONDS))}
    # The files themselves: what lies at the place is often a link to another name.
    return [Entry(place.lstrip("/"), Path(place).resolve(), 0o755) for place in sorted(found)]


def places(listing: str) -> list[str]:
    """Read what ldd prints; the kernel's own library has no place."""
    return _PLACE.findall(listing)
