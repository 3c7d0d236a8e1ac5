"""requests over the tunnel.

session = requests.Session()
session.mount("https://", TunnelAdapter(BlockingDialer(settings)))
"""

from typing import Any, Final

from umbilical.dialer.blocking import BlockingDialer

try:
    import requests.adapters
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("umbilical.dialer.requests_adapter needs requests: pip install requests") from error

from umbilical.dialer.urllib3_pools import tunnel_pool_manager


class TunnelAdapter(requests.adapters.HTTPAdapter):
    """Every request goes through the tunnel: proxies, also those of the environment, are ignored.

    Closing the session closes its connections, not the dialer.
    """

    def __init__(self, dialer: BlockingDialer, **options: Any) -> None:
        """`options` as HTTPAdapter takes them."""
        self._dialer: Final = dialer
        super().__init__(**options)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        self.poolmanager = tunnel_pool_manager(
            self._dialer, num_pools=connections, maxsize=maxsize, block=block, **options
        )

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        return super().send(request, *arguments[:4], **(options | {"proxies": None}))
