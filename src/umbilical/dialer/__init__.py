"""The client's side of the tunnel, for programs that want to reach what only agents can.

asyncio:   dialer.Dialer(settings).open(host, port) gives a reader and a writer
scripts:   blocking.BlockingDialer(settings).open(host, port) gives a socket
requests:  session.mount("https://", requests_adapter.TunnelAdapter(blocking_dialer))
"""
