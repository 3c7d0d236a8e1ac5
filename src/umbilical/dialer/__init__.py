"""The client's side of the tunnel, for programs that want to reach what only agents can.

from umbilical.dialer.dialer import Dialer
reader, writer = await dialer.open("10.128.2.5", 8443)
"""
