"""The pace of pings: as many as asked for, told one by one, each with its number."""

import asyncio

from tests.hosted.conftest import Tunnel

from umbilical.hosted.ping import Pace, ping
from umbilical.hosted.trip import Trip
from umbilical.hosted.way import Endpoint, Way

SECONDS = 60.0


def test_every_trip_is_told_when_it_is_over(tunnel: Tunnel) -> None:
    host, _, port = tunnel.stage.endpoint().address.rpartition(":")
    told: list[Trip] = []

    async def scenario() -> None:
        async with asyncio.timeout(SECONDS):
            await ping(Way(tunnel.access, Endpoint(host, int(port)), SECONDS), Pace(3, 0.01), told.append)

    asyncio.run(scenario())
    assert [trip.sequence for trip in told] == [1, 2, 3]
    assert all(trip.is_ok for trip in told)


def test_nothing_of_a_ping_stays_open(tunnel: Tunnel) -> None:
    host, _, port = tunnel.stage.endpoint().address.rpartition(":")
    asyncio.run(ping(Way(tunnel.access, Endpoint(host, int(port)), SECONDS), Pace(2, 0.0), lambda _: None))
    tunnel.stage.servers[0].wait_until_quiet()
    tunnel.stage.agents[0].wait_until_idle()


def test_the_next_begins_an_interval_after_the_last_began(tunnel: Tunnel) -> None:
    loop_times: list[float] = []
    host, _, port = tunnel.stage.endpoint().address.rpartition(":")

    async def scenario() -> None:
        def tell(_: Trip) -> None:
            loop_times.append(asyncio.get_running_loop().time())

        began = asyncio.get_running_loop().time()
        await ping(Way(tunnel.access, Endpoint(host, int(port)), SECONDS), Pace(2, 0.3), tell)
        loop_times.insert(0, began)

    asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    assert loop_times[2] - loop_times[0] >= 0.3
