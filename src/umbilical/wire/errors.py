"""Two kinds of error: `ProtocolViolation` is caused by the peer, `MisuseError` by our own code."""


class ProtocolViolation(Exception):
    """The peer sent what the protocol forbids. Carries what an answer on the wire needs."""

    def __init__(self, code: int, message: str, stream_id: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """In the protocol at hand: HTTP/2 error code, gRPC status or HTTP/1.1 status."""
        self.message = message
        self.stream_id = stream_id
        """0: the violation ends the whole connection; otherwise this stream only."""


class MisuseError(Exception):
    """Our own code called a protocol object in a state that does not allow the call: a bug."""
