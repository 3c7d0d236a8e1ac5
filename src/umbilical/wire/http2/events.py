"""What `Connection.next_event` returns; the details are attributes of the connection."""

from typing import Final

NEED_DATA: Final = 0
DATA: Final = 1
HEADERS: Final = 2
RESET: Final = 3
WINDOW_OPENED: Final = 4
GOAWAY: Final = 5
PING_ANSWERED: Final = 6
SETTINGS_RECEIVED: Final = 7
FAILED: Final = 8
NOTHING: Final = -1
"""Of one frame: the connection dealt with it alone, and looks at the next."""
