"""From a host and a port to a connection, whichever way."""

import pytest
from tests.proxies.name_scenes import Counts, ScriptedTunnel, outbound_settings, play

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.proxies.outbound import Outbound
from umbilical.proxies.settings import Resolution


@pytest.mark.parametrize("host", ["console.example.com", "10.0.0.7", "fd00::7"])
def test_a_name_that_the_agent_resolves_goes_through_the_tunnel_as_it_is(host: str) -> None:
    async def scenario() -> None:
        tunnel, counts = ScriptedTunnel(), Counts()
        outbound = Outbound(outbound_settings(Resolution.AGENT), tunnel, {}, None, counts)
        reader, writer = await outbound.open(host, 443)
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        assert tunnel.dials == [(host, 443)]
        assert counts.dials == [("tunnel", "ok")]
        await tunnel.close()
        await outbound.close()

    play(scenario())


def test_a_failure_comes_as_the_dialer_told_it_and_is_counted() -> None:
    async def scenario() -> None:
        tunnel, counts = ScriptedTunnel({"10.0.0.7": Reason.REFUSED}), Counts()
        outbound = Outbound(outbound_settings(Resolution.AGENT), tunnel, {}, None, counts)
        with pytest.raises(DialFailed) as caught:
            await outbound.open("10.0.0.7", 443)
        assert (caught.value.reason, caught.value.hop) == (Reason.REFUSED, "10.0.0.7")
        assert counts.dials == [("tunnel", "refused")]
        await outbound.close()

    play(scenario())
