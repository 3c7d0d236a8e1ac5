"""SOCKS5 and HTTP in front of the tunnel: listeners, name resolution, users' own proxies."""
