"""SOCKS5 and HTTP proxies for the tunnel: listeners, name resolution, the user's own proxy."""
