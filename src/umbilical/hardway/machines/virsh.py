"""libvirt's network, storage pool and virtual machines, with virsh."""

import re
import time
from collections.abc import Callable
from typing import Final

from umbilical.hardway.machines.host import Host, do, holds
from umbilical.host.machine_records import Power

SHUTDOWN_SECONDS: Final = 120.0
POLL_SECONDS: Final = 2.0
_STDIN: Final = "/dev/stdin"
_RUNNING: Final = ("running", "idle", "paused", "in shutdown", "pmsuspended")


class Virsh:
    """All methods are idempotent."""

    def __init__(
        self, host: Host, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._host = host
        self._clock = clock
        self._sleep = sleep

    def make_pool(self, name: str, folder: str) -> None:
        # 0711: qemu must enter it, and others must not list it.
        do(self._host, "install", "-d", "-m", "0711", folder)
        if not self.has("pool-info", name):
            self._do("pool-define-as", name, "dir", "--target", folder)
        if not self.is_so("pool-info", name, "State", "running"):
            self._do("pool-start", name)
        self._do("pool-autostart", name)

    def make_network(self, name: str, definition: bytes) -> None:
        """Define the network; restart an active one if its definition changed."""
        before = self.dump("net-dumpxml", "--inactive", name)
        do(self._host, "virsh", "net-define", _STDIN, stdin=definition)
        is_changed = before is not None and before != self.dump("net-dumpxml", "--inactive", name)
        if is_changed and self.is_so("net-info", name, "Active", "yes"):
            self._do("net-destroy", name)
        if not self.is_so("net-info", name, "Active", "yes"):
            self._do("net-start", name)
        self._do("net-autostart", name)

    def define(self, definition: bytes) -> None:
        do(self._host, "virsh", "define", _STDIN, stdin=definition)

    def power(self, domain: str) -> Power:
        done = self._host.run(["virsh", "domstate", domain])
        if done.exit_code != 0:
            return Power.ABSENT
        return Power.ON if done.text.strip() in _RUNNING else Power.OFF

    def start(self, domain: str) -> None:
        if self.power(domain) is not Power.ON:
            self._do("start", domain)

    def stop(self, domain: str) -> None:
        """Shut the machine down; after SHUTDOWN_SECONDS force it off."""
        if self.power(domain) is not Power.ON:
            return
        self._host.run(["virsh", "shutdown", domain])
        end = self._clock() + SHUTDOWN_SECONDS
        while self.power(domain) is Power.ON:
            if self._clock() >= end:
                self._do("destroy", domain)
                return
            self._sleep(POLL_SECONDS)

    def remove(self, domain: str) -> None:
        power = self.power(domain)
        if power is Power.ON:
            self._do("destroy", domain)
        if power is not Power.ABSENT:
            self._do("undefine", domain, "--nvram")

    def remove_network(self, name: str) -> None:
        if not self.has("net-info", name):
            return
        if self.is_so("net-info", name, "Active", "yes"):
            self._do("net-destroy", name)
        self._do("net-undefine", name)

    def remove_pool(self, name: str) -> None:
        """Undefine the pool; keep its directory, which holds the user's live image."""
        if not self.has("pool-info", name):
            return
        if self.is_so("pool-info", name, "State", "running"):
            self._do("pool-destroy", name)
        self._do("pool-undefine", name)

    def has(self, question: str, name: str) -> bool:
        return holds(self._host, "virsh", question, name)

    def is_so(self, question: str, name: str, field: str, value: str) -> bool:
        """Whether the output has a line `Field:   value`."""
        done = self._host.run(["virsh", question, name])
        return re.search(rf"^{field}:\s+{value}$", done.text, re.MULTILINE) is not None

    def dump(self, *question: str) -> str | None:
        done = self._host.run(["virsh", *question])
        return done.text if done.exit_code == 0 else None

    def _do(self, *command: str) -> None:
        do(self._host, "virsh", *command)
