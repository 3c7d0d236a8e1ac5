"""Which kinds a cluster serves, and where: asked of the API itself, so that no table of them is needed here."""

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import Kind
from umbilical.fault import ApiRefused


class Discovery:
    """Asks once for each version of an API group, and again for one that was forgotten."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._served: dict[str, dict[str, Kind]] = {}

    async def find(self, api_version: str, kind: str) -> Kind | None:
        """Find a kind; None where the cluster serves none.

        Raises:
            ApiRefused: the cluster does not say.
            ApiUnreachable: no answer.
        """
        if api_version not in self._served:
            self._served[api_version] = await self._ask(api_version)
        return self._served[api_version].get(kind)

    def forget(self, api_version: str) -> None:
        """Ask anew the next time: a CRD may have come since."""
        self._served.pop(api_version, None)

    async def _ask(self, api_version: str) -> dict[str, Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            answer = await self._client.request("GET", path)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return {}
            raise
        served = objects.items(answer.get("resources"))
        # A name with a slash is a part of another resource: deployments/scale is a Scale.
        whole = [item for item in served if "/" not in str(item.get("name"))]
        return {
            str(item["kind"]): Kind(str(item["kind"]), path, str(item["name"]), bool(item.get("namespaced")))
            for item in whole
        }
