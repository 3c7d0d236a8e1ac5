"""HTTP/2 (RFC 9113) for gRPC, client and server side, without I/O."""
