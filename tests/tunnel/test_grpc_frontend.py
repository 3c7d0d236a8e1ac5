"""Connections of gRPC clients: many streams or one, and calls that are none of ours."""

from tests.support.in_process import Stage, echo
from tests.support.scripted_peers import (
    open_client_channel,
    open_ended,
    open_proxy_stream,
)
from tests.support.tunnel_client import PROXY_PATH, GrpcDial, receive_exactly


def test_many_streams_on_one_connection_are_many_tunnels(stage: Stage) -> None:
    server, agent = stage.start_pair("grpc")
    endpoint = stage.endpoint().serve(echo)
    channel = open_client_channel(server)
    tunnels = [GrpcDial(channel, endpoint.address, owns_channel=False).finish() for _ in range(200)]
    assert server.gauges().proxy_streams == 200
    for number, tunnel in enumerate(tunnels):
        tunnel.send(b"%03d" % number * 1000)
    for number, tunnel in enumerate(tunnels):
        assert receive_exactly(tunnel, 3000) == b"%03d" % number * 1000
    for tunnel in tunnels:
        tunnel.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_one_stream_per_connection_is_served_as_well(stage: Stage) -> None:
    """As kube-apiserver does today: a connection for every dial."""
    server, agent = stage.start_pair("grpc")
    endpoint = stage.endpoint().serve(echo)
    for number in range(50):
        tunnel = server.frontend.open(endpoint.address)
        tunnel.send(b"%d" % number)
        assert receive_exactly(tunnel, len(b"%d" % number)) == b"%d" % number
        tunnel.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_a_message_beyond_four_mib_ends_its_stream(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_proxy_stream(server)
    stream.send_raw(b"\0" + (4 * 1024 * 1024 + 1).to_bytes(4, "big"))
    stream.wait_for_end()
    assert stream.trailers is not None
    assert stream.trailers["grpc-status"] == "8"


def test_an_unknown_method_is_unimplemented_by_trailers_alone(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_client_channel(server).open("/ProxyService/Nothing")
    stream.wait_for_end()
    assert stream.response_headers is not None
    assert stream.response_headers[":status"] == "200"
    assert stream.response_headers["grpc-status"] == "12"
    assert stream.response_headers["grpc-message"] == "unknown method /ProxyService/Nothing"


def test_a_stream_that_ends_before_it_begins_is_ok_by_trailers_alone(stage: Stage) -> None:
    stream = open_ended(open_client_channel(stage.start_server("grpc")), PROXY_PATH)
    stream.wait_for_end()
    assert stream.trailers is not None
    assert (stream.trailers[":status"], stream.trailers["grpc-status"]) == ("200", "0")
