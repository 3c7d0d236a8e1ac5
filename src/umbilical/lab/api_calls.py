"""`python -m umbilical.lab.api_calls times|until KUBECONFIG COUNT|STOP_FILE`: create an object that the webhook allows,
so many times, or until a file is there.

Dry runs on the server, one after the other over one connection, so that what is timed is the API server and its
webhook and not the start of a client. Prints as JSON the seconds of each; or, with a short rest between the calls,
how many were made, the seconds of the slowest, and in what words the others failed.
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
"""Else the client library would stretch the calls to five a second."""
REST_SECONDS: Final = 0.05
# Nobody reads more, and a cluster that is down would fill a disk.
MOST_FAILURES: Final = 100


@dataclass
class CallTotals:
    allowed: int = 0
    slowest_seconds: float = 0.0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    """The first of them, in kube-apiserver's words."""


def _path(wanted: dict[str, Any]) -> str:
    return f"/api/{wanted['apiVersion']}/namespaces/{wanted['metadata']['namespace']}/{wanted['kind'].lower()}s"


async def call_until(kubeconfig: Path, wanted: dict[str, Any], stop_file: Path, calls: CallTotals) -> None:
    """CallResult, and count as it goes."""
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
    """Say how it is run on a node that has a kube-apiserver."""
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
