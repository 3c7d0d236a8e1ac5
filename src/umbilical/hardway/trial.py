"""The service by which a newborn cluster is tried: a webhook in a pod, and a workload behind a Service.

What it consists of depends on where images come from, so `cli` introduces it as it introduces machines.
"""

from collections.abc import Sequence
from typing import Any, Protocol


class Trial(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def pod(self) -> str:
        """The name of the webhook's pod, which is its Service's as well."""
        ...

    @property
    def webhook_name(self) -> str: ...

    def webhook_objects(self, node_name: str) -> Sequence[dict[str, Any]]:
        """Make what the webhook needs, its pod bound to a node, the configuration last. New keys each time."""
        ...

    def judged(self, verdict: str) -> dict[str, Any]:
        """Return an object that the webhook allows (`allow`) or denies (`deny`)."""
        ...

    def workload(self, replicas: int) -> Sequence[dict[str, Any]]:
        """A Deployment that spreads over nodes, and its Service; both are called like `workload_name`."""
        ...

    @property
    def workload_name(self) -> str: ...

    def fetch_command(self, url: str) -> Sequence[str]:
        """What to run in a pod of the workload so that it fetches a URL and prints the body."""
        ...

    @property
    def workload_port(self) -> int: ...
