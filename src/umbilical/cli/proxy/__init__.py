"""`umbilical proxy`: SOCKS5 and HTTP in front of the tunnel. One module for each command."""
