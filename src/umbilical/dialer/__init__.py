"""The client's side of the tunnel, for programs that want to reach what only agents can.

from umbilical.dialer.dialer import Dialer                      # asyncio: reader, writer = await dialer.open(host, port)
from umbilical.dialer.blocking import BlockingDialer            # sock = dialer.open(host, port)
from umbilical.dialer.requests_adapter import TunnelAdapter     # session.mount("https://", TunnelAdapter(dialer))
from umbilical.dialer.settings import DialerSettings, TcpServer, UnixServer
"""
