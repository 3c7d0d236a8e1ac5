"""The client side of the tunnel, for programs that need endpoints that only agents can reach.

asyncio:   dialer.Dialer(settings).open(host, port) returns a reader and a writer
scripts:   blocking.BlockingDialer(settings).open(host, port) returns a socket
requests:  session.mount("https://", requests_adapter.TunnelAdapter(blocking_dialer))
"""
