"""`umbilical proxy`: SOCKS5 and HTTP proxies for the tunnel."""
