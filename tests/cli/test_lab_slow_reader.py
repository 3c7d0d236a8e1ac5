import threading
from pathlib import Path

import pytest
from tests.support.in_process import PATIENCE_SECONDS, Stage, source
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.cli import lab_slow_reader
from umbilical.tunnel.settings import UnixFrontend


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_a_tunnel_is_opened_and_nothing_is_read_from_it(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(make_tunnel_pki(tmp_path), tmp_path)
    try:
        server, _ = stage.start_pair(mode)
        assert isinstance(server.settings.frontend, UnixFrontend)
        path = str(server.settings.frontend.path)
        endpoint = stage.endpoint().serve(source(64 << 20))
        hold, statuses = threading.Event(), list[int]()
        arguments = [mode, path, endpoint.address]
        reader = threading.Thread(target=lambda: statuses.append(lab_slow_reader.main(arguments, hold)))
        reader.start()
        stage.eventually(lambda: server.server.exchange.board.established_count() == 1)
        hold.set()
        reader.join(PATIENCE_SECONDS)
        assert statuses == [0]
        assert "nobody reads it" in capsys.readouterr().out
        server.wait_until_quiet()
    finally:
        stage.stop()


def test_a_dial_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab_slow_reader.main(["grpc", str(tmp_path / "gone.sock"), "10.0.0.5:443"]) == 1
    assert "no tunnel to 10.0.0.5:443: " in capsys.readouterr().err
