"""What a virtualisation host has: cores, memory, disk, programs, and whether libvirt answers."""

import re
from typing import Final

from umbilical.hardway.config.cluster import Libvirt
from umbilical.hardway.machines.libvirt.host import Host, do
from umbilical.host.machine_records import Survey

PROGRAMS: Final = (
    *("podman", "oc", "openssl", "virsh", "qemu-img", "coreos-installer", "haproxy", "ssh", "socat", "ip", "iptables"),
    *("systemctl", "dig"),
)
_FIND: Final = 'for program; do printf "%s=%s\\n" "$program" "$(command -v "$program")"; done'
_FREE: Final = (
    'place=$1; while ! test -e "$place"; do place=${place%/*}; place=${place:-/}; done; '
    'df --output=avail -BG -- "$place"'
)
"""Free room where the pool will be: the directory may not exist yet."""


def survey(host: Host, libvirt: Libvirt) -> Survey:
    found = do(host, "sh", "-c", _FIND, "sh", *PROGRAMS)
    programs = dict(line.split("=", 1) for line in found.splitlines() if "=" in line)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", do(host, "cat", "/proc/meminfo"), re.MULTILINE)
    free = re.search(r"(\d+)G", do(host, "sh", "-c", _FREE, "sh", libvirt.pool_directory))
    return Survey(
        cores=int(do(host, "nproc").strip() or 0),
        memory_mib=int(memory[1]) // 1024 if memory else 0,
        free_disk_gib=int(free[1]) if free else 0,
        programs={name: programs.get(name, "") for name in PROGRAMS},
        notes=tuple(_notes(host, has_libvirt=bool(programs.get("virsh")))),
    )


def _notes(host: Host, *, has_libvirt: bool) -> list[str]:
    # A program that is missing is a finding, and cannot be asked: the survey has to come to its end without it.
    done = host.run(["virsh", "list", "--all"]) if has_libvirt else None
    notes = [] if done is None or done.exit_code == 0 else [f"libvirt does not answer: {done.complaint}"]
    machine = do(host, "uname", "-m").strip()
    return notes if machine == "x86_64" else [*notes, f"the host is {machine}, and machines are defined for x86_64"]
