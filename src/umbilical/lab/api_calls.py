"""`python -m umbilical.lab.api_calls times|until KUBECONFIG COUNT|STOP_FILE`: create an object that the webhook allows.

Server-side dry runs, one after the other on one connection, so that the times do not include a client's start.
`times` makes COUNT calls and prints the seconds of each as JSON. `until` calls until STOP_FILE exists and prints the
number of calls, the slowest, and the first failures.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import make_client
from umbilical.fault import ClusterError
from umbilical.lab.control_plane import ADMIN_KUBECONFIG
from umbilical.lab.objects import judged

UNLIMITED: Final = -1.0
"""The client's default limit is five calls per second."""
REST_SECONDS: Final = 0.05
# A limit, so that calls to a cluster that is down do not fill the disk.
MOST_FAILURES: Final = 100


@dataclass
class CallTotals:
    allowed: int = 0
    slowest_seconds: float = 0.0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    """The first failures, with kube-apiserver's message."""


def _path(wanted: dict[str, Any]) -> str:
    return f"/api/{wanted['apiVersion']}/namespaces/{wanted['metadata']['namespace']}/{wanted['kind'].lower()}s"


async def call_until(kubeconfig: Path, wanted: dict[str, Any], stop_file: Path, calls: CallTotals) -> None:
    """Call until the file exists, and count in `calls`."""
    path = _path(wanted)
    async with make_client(kubeconfig, qps=UNLIMITED) as client:
        while not stop_file.exists():
            start = time.perf_counter()
            try:
                await client.request("POST", path, query={"dryRun": "All"}, body=wanted)
                calls.allowed += 1
            except ClusterError as fault:
                calls.failed += 1
                calls.failures = [*calls.failures, f"{fault.what}: {fault.why}"][:MOST_FAILURES]
            calls.slowest_seconds = max(calls.slowest_seconds, time.perf_counter() - start)
            await asyncio.sleep(REST_SECONDS)


async def call(kubeconfig: Path, wanted: dict[str, Any], count: int) -> list[float]:
    path = _path(wanted)
    seconds = []
    async with make_client(kubeconfig, qps=UNLIMITED) as client:
        for _ in range(count):
            start = time.perf_counter()
            await client.request("POST", path, query={"dryRun": "All"}, body=wanted)
            seconds.append(time.perf_counter() - start)
    return seconds


def command(form: str, bound: str) -> list[str]:
    """Return the command that runs this module on a node with a kube-apiserver."""
    return [sys.executable, "-m", "umbilical.lab.api_calls", form, ADMIN_KUBECONFIG, bound]


def main(arguments: list[str]) -> int:
    form, kubeconfig, bound = arguments
    wanted = judged("allow")
    if form == "times":
        json.dump(asyncio.run(call(Path(kubeconfig), wanted, int(bound))), sys.stdout)
    else:
        calls = CallTotals()
        asyncio.run(call_until(Path(kubeconfig), wanted, Path(bound), calls))
        json.dump(asdict(calls), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
