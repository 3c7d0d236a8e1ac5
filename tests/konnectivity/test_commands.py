"""What a tunnel and a connection are when they begin, and that every order can be told in words."""

from tests.playbook import said

from umbilical.konnectivity import commands as orders
from umbilical.konnectivity.commands import DIALLING, PENDING, EndpointConnection, Tunnel
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentLink
from umbilical.wire import packets


def test_a_tunnel_begins_as_a_pending_dial_of_its_client() -> None:
    client = object()
    tunnel = Tunnel(client, dial_id=7, address="web:443", asked_at=3.5)
    assert tunnel.client is client
    assert (tunnel.dial_id, tunnel.address, tunnel.asked_at) == (7, "web:443", 3.5)
    assert tunnel.state == PENDING
    assert tunnel.link is None
    assert tunnel.connection_id == 0


def test_a_connection_begins_as_a_dial_of_the_agent() -> None:
    connection = EndpointConnection(dial_id=7, connection_id=1, network="tcp", address="web:443")
    assert connection.state == DIALLING
    assert connection.shell is None


def test_states_of_a_tunnel_and_of_a_connection_are_distinct() -> None:
    assert len({orders.PENDING, orders.ESTABLISHED, orders.CLOSING, orders.ENDED}) == 4
    assert len({orders.DIALLING, orders.CONNECTED, orders.FLUSHING, orders.GONE}) == 4


def test_orders_of_the_server_name_whom_they_concern() -> None:
    link = AgentLink(1, "a1", AgentIdentifiers())
    tunnel = Tunnel(None, 7, "web:443", 0.0)
    told = said(
        [
            orders.ToAgent(link, packets.CLOSE_REQ, packets.encode_close_request(9)),
            orders.RefuseDial(tunnel, DialFailure(FailureReason.NO_AGENT)),
            orders.OpenTunnel(tunnel),
            orders.CloseTunnel(tunnel, "oops", "endpoint closed"),
            orders.CountDialFailure("no_agent"),
            orders.RetireAgent(link),
        ]
    )
    assert told == [
        "a1 <- CLOSE_REQ connection=9",
        "refuse dial 7: No agent available",
        "open dial 7 as connection 0",
        "close connection 0, error 'oops': endpoint closed",
        "count no_agent",
        "retire a1",
    ]


def test_orders_of_the_agent_name_whom_they_concern() -> None:
    connection = EndpointConnection(7, 1, "tcp", "web:443")
    told = said(
        [
            orders.ToServer(packets.CLOSE_RSP, packets.encode_close_response("", 1)),
            orders.StartDial(connection),
            orders.CancelDial(connection),
            orders.FlushAndClose(connection),
            orders.AbortEndpoint(connection),
        ]
    )
    assert told == [
        "server <- CLOSE_RSP connection=1 error=''",
        "dial connection 1 tcp web:443",
        "cancel connection 1",
        "flush and close connection 1",
        "abort connection 1",
    ]
