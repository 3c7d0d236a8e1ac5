"""Where agents reach a server, as its lease says it: one annotation, `HOST:PORT`.

Upstream knows of no such thing and leaves it alone; a lease without it is reached as ever, by what the agent was given.
"""

import re
from typing import Final

ANNOTATION: Final = "umbilical.dev/agent-address"
_LAST_PORT: Final = 65535
_LONGEST: Final = 300
"""More than any DNS name with a port; whoever may write leases shall not fill our logs."""
_WRITTEN: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[0-9A-Za-z._-]+)):(?P<port>[0-9]{1,5})")


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: object) -> tuple[str, int] | None:
    """Host and port; None for what is no address: a lease of others is no fault of ours."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    found = _WRITTEN.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= _LAST_PORT:
        return None
    return found["v6"] or found["host"], int(found["port"])
