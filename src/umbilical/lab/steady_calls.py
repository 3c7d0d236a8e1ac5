"""`python -m umbilical.lab.steady_calls KUBECONFIG STOP_FILE OBJECT`: create an object until a file is there.

Dry runs on the server, one after the other with a short rest between them. Prints as JSON how many were made, the
seconds of the slowest, and in what words the others failed.
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

UNLIMITED: Final = -1.0
REST_SECONDS: Final = 0.05
# Nobody reads more, and a cluster that is down would fill a disk.
MOST_FAILURES: Final = 100


@dataclass
class Calls:
    allowed: int = 0
    slowest_seconds: float = 0.0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    """The first of them, in kube-apiserver's words."""


async def call_until(kubeconfig: Path, wanted: dict[str, Any], stop_file: Path, calls: Calls) -> None:
    """Call, and count as it goes."""
    path = f"/api/{wanted['apiVersion']}/namespaces/{wanted['metadata']['namespace']}/{wanted['kind'].lower()}s"
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


def main(arguments: list[str]) -> int:
    calls = Calls()
    asyncio.run(call_until(Path(arguments[0]), json.loads(arguments[2]), Path(arguments[1]), calls))
    json.dump(asdict(calls), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
