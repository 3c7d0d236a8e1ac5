"""`umbilical proxy`: SOCKS5 and HTTP proxies for the tunnel. One module for each command."""
