"""The limits and windows that one side of a connection grants to the other."""

from typing import Final

from umbilical.wire.http2 import frames


class Profile:
    """What one side of a connection advertises."""

    def __init__(
        self,
        *,
        frame_bytes: int = frames.DEFAULT_FRAME_BYTES,
        stream_window_bytes: int = 1024 * 1024,
        connection_window_bytes: int = 16 * 1024 * 1024,
        max_streams: int = 1_000,
        credits_on_arrival: bool = False,
    ) -> None:
        self.frame_bytes: Final = frame_bytes
        self.stream_window_bytes: Final = stream_window_bytes
        self.connection_window_bytes: Final = connection_window_bytes
        self.max_streams: Final = max_streams
        self.credits_on_arrival: Final = credits_on_arrival
        """Streams are credited as soon as bytes arrive; else the shell calls `credit` when it has dealt with them."""
