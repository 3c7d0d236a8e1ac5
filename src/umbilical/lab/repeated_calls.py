"""`python -m umbilical.lab.repeated_calls KUBECONFIG COUNT`: create the object on standard input that many times.

Dry runs on the server, one after the other over one connection, so that what is timed is the API server and its
webhook and not the start of a client. Prints the seconds of each as JSON.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import make_client

UNLIMITED: Final = -1.0


async def call(kubeconfig: Path, wanted: dict[str, Any], count: int) -> list[float]:
    namespace = wanted["metadata"]["namespace"]
    path = f"/api/{wanted['apiVersion']}/namespaces/{namespace}/{wanted['kind'].lower()}s"
    seconds = []
    # Unlimited: the client library would stretch the calls to five a second.
    async with make_client(kubeconfig, qps=UNLIMITED) as client:
        for _ in range(count):
            start = time.perf_counter()
            await client.request("POST", path, query={"dryRun": "All"}, body=wanted)
            seconds.append(time.perf_counter() - start)
    return seconds


def main(arguments: list[str]) -> int:
    wanted = json.load(sys.stdin)
    json.dump(asyncio.run(call(Path(arguments[0]), wanted, int(arguments[1]))), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
