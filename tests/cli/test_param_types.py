"""Values of our own commands: durations, addresses, places to listen."""

from pathlib import Path

import click
import pytest

from umbilical.cli.param_types import SocketPath, address, duration, listen_place, server_address
from umbilical.tunnel.settings import ListenAddress


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10.0), ("500ms", 0.5), ("1h30m", 5400.0), ("0", 0.0)])
def test_a_duration_becomes_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "soon", "-1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:80", ListenAddress("127.0.0.1", 80)),
        (":8091", ListenAddress("", 8091)),
        ("[::1]:0", ListenAddress("::1", 0)),
        ("host.example:65535", ListenAddress("host.example", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, place: ListenAddress) -> None:
    assert address(text) == place
    assert listen_place(text) == place


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "::1:80", "host:65536", "host:99999999", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        address(text)


@pytest.mark.parametrize("text", [":8091", "host:0"])
def test_an_address_to_connect_to_is_complete(text: str) -> None:
    with pytest.raises(click.BadParameter):
        server_address(text)


def test_a_unix_socket_is_a_place_to_listen() -> None:
    assert listen_place("unix:/run/k.sock") == SocketPath(Path("/run/k.sock"))
    with pytest.raises(click.BadParameter):
        listen_place("unix:")
