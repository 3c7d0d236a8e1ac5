"""A few objects behind the paths of the Kubernetes API, with the faults that a test wants: no real server has them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import ApiClient, make_client

Json = dict[str, Any]
ResultT = TypeVar("ResultT")
LABELLED = {"labels": {"openshift.io/bootstrap-only": "true"}}


@dataclass
class ObjectStore:
    """Objects by path. A deletion takes the object away, unless it is `held`."""

    objects: dict[str, Json] = field(default_factory=dict)
    faults: dict[tuple[str, str], Answer] = field(default_factory=dict)
    """By method and path: what is answered instead."""
    held: set[str] = field(default_factory=set)
    swaps: dict[str, Json] = field(default_factory=dict)
    """By path: what somebody puts in the object's place right before it is deleted."""
    requests: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        fault = self.faults.get((request.method, request.path))
        if fault is not None:
            return fault
        if request.method == "DELETE":
            return self._delete(request)
        if request.path in self.objects:
            return json_answer(self.objects[request.path])
        if request.path.rpartition("/")[2] in ("pods", "daemonsets", "secrets", "configmaps", "namespaces"):
            found = [item for path, item in self.objects.items() if path.rpartition("/")[0] == request.path]
            return json_answer({"items": found})
        return status_answer(404, "NotFound")

    def _delete(self, request: Request) -> Answer:
        if request.path in self.swaps:
            self.objects[request.path] = self.swaps[request.path]
        item = self.objects.get(request.path)
        if item is None:
            return status_answer(404, "NotFound")
        if request.body["preconditions"]["uid"] != item["metadata"]["uid"]:
            return status_answer(409, "Conflict", "Precondition failed: UID")
        if "dryRun" not in request.body and request.path not in self.held:
            del self.objects[request.path]
        return json_answer({"kind": "Status"})

    @property
    def deleted(self) -> list[str]:
        """The paths of every deletion that was asked for, in order."""
        return [request.path for request in self.requests if request.method == "DELETE"]


def thing(uid: str, **metadata: Any) -> Json:
    return {"metadata": {"uid": uid, **metadata}}


def with_client(
    store: ObjectStore, folder: Path, act: Callable[[ApiClient], Awaitable[ResultT]], request_seconds: float = 10.0
) -> ResultT:
    """Serve the store while `act` runs."""

    async def scenario() -> ResultT:
        async with ScriptedApi(store.answer) as api:
            config = api.write_kubeconfig(folder)
            async with make_client(config, request_seconds=request_seconds) as client:
                return await act(client)

    return run_async(scenario())


def tunnel_store(namespace: str = "openshift-bootstrap-konnectivity") -> ObjectStore:
    """The three objects of a tunnel, labelled."""
    return ObjectStore(
        {
            f"/apis/apps/v1/namespaces/{namespace}/daemonsets/konnectivity-agent": thing("d", **LABELLED),
            f"/api/v1/namespaces/{namespace}/secrets/konnectivity-agent-certs": thing("s", **LABELLED),
            f"/api/v1/namespaces/{namespace}": thing("n", **LABELLED),
        }
    )
