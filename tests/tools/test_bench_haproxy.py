"""The limit of the bench: two haproxy processes, started anew in every round."""

from pathlib import Path

from bench_haproxy import Relay
from bench_tunnel import Pki


def test_rounds_share_one_authority_and_each_writes_its_files_again(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        relay = Relay(Path("haproxy"), pki, folder)
        assert "haproxy-client.pem" in relay._near()
        assert "haproxy-server.pem" in relay._far()
    for name, pair in (("client", pki.agent), ("server", pki.server)):
        written = tmp_path / "pki" / f"haproxy-{name}.pem"
        assert written.read_bytes() == pair[0].read_bytes() + pair[1].read_bytes()
        assert written.stat().st_mode & 0o077 == 0
