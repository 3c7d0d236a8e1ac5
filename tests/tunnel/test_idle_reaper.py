"""Tunnels that nobody uses are closed where that is wanted, and those that move a byte are not."""

import pytest
from tests.support.in_process import Stage, echo
from tests.support.tunnel_client import receive_exactly


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_an_idle_tunnel_is_closed_with_the_cause_and_a_busy_one_stays(
    stage: Stage, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, agent = stage.start_pair(mode, idle_tunnel_seconds=600.0)
    address = stage.endpoint().serve(echo).address
    idle, busy = server.frontend.open(address), server.frontend.open(address)
    for _ in range(6):  # looks are 150 s apart, and each must be seen to happen
        busy.send(b"x")
        assert receive_exactly(busy, 1) == b"x"
        stage.skip(151, monkeypatch)
    assert idle.receive(1) == b""
    assert 'end="idle for 600 s"' in caplog.text
    busy.send(b"still here")
    assert receive_exactly(busy, 10) == b"still here"
    busy.close()
    idle.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_without_the_option_nothing_looks(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert server.server._reaper is None
