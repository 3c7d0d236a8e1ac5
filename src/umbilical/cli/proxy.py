"""`umbilical proxy`: SOCKS5 and HTTP in front of the tunnel, for programs that know nothing of it."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final[tuple[str, ...]] = ("socks5", "https", "curl")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.proxy_{name}" for name in COMMANDS})
def proxy() -> None:
    """Reach what only agents can, with programs that speak SOCKS5 or HTTP proxy."""
