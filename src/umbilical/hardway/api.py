"""The cluster's API for stages: one call in, one answer out, through the load balancer or at one master's own."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from umbilical.cluster.client import ApiClient, make_client
from umbilical.fault import ApiUnreachable

Result = TypeVar("Result")

REQUEST_SECONDS: Final = 20.0
CALL_SECONDS: Final = 120.0
QPS: Final = 50.0
BURST: Final = 300
"""As kubectl asks. With what is usual for controllers, 5 a second, some hundred manifests take a minute."""


class Api:
    """Stages are plain functions; each call runs its own event loop to its end."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def call(self, ask: Callable[[ApiClient], Awaitable[Result]], timeout_seconds: float = CALL_SECONDS) -> Result:
        """Ask with a client that is closed afterwards.

        Raises:
            ClusterError: what the API said, or that it said nothing, or not all of it in time.
        """

        async def run() -> Result:
            async with (
                asyncio.timeout(timeout_seconds),
                make_client(self.kubeconfig, qps=QPS, burst=BURST, request_seconds=REQUEST_SECONDS) as client,
            ):
                return await ask(client)

        try:
            return asyncio.run(run())
        except TimeoutError:
            raise ApiUnreachable("all of it", f"it took longer than {timeout_seconds:g} s") from None
