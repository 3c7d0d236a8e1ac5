"""Who is at fault: `ProtocolViolation` is the peer's, `MisuseError` is ours."""


class ProtocolViolation(Exception):
    """The peer sent what the protocol forbids; carries what is needed to answer it on the wire."""

    def __init__(self, code: int, message: str, stream_id: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """The error code of the protocol at hand: HTTP/2 error code, gRPC status, HTTP/1.1 status."""
        self.message = message
        self.stream_id = stream_id
        """0: the whole connection is at fault; else this stream alone."""


class MisuseError(Exception):
    """Our own code called a protocol object in a way that its state does not allow: a bug of ours."""
