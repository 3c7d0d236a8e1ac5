"""Which ends of a Connect stream `stream_errors_total` counts, at both sides."""

from tests.support.in_process import RunningAgent, RunningServer, Stage
from tests.support.scripted_peers import ScriptedAgent, ScriptedServer

FAMILY = "stream_errors_total{"


def server_errors(server: RunningServer) -> list[str]:
    return [line.partition(FAMILY)[2] for line in _lines(server.server.render_metrics())]


def agent_errors(agent: RunningAgent) -> list[str]:
    return [line.partition(FAMILY)[2] for line in _lines(agent.agent.metrics.render(agent.agent.gauges()))]


def _lines(text: bytes) -> list[str]:
    return [line for line in text.decode().splitlines() if FAMILY in line]


def test_a_server_counts_connect_streams_that_are_lost_and_not_those_that_end(stage: Stage) -> None:
    server = stage.start_server()
    orderly = ScriptedAgent(server, "orderly")
    orderly.stream.finish()
    orderly.channel.catch_up()
    assert server_errors(server) == []
    lost, reset = ScriptedAgent(server, "lost"), ScriptedAgent(server, "reset")
    lost.channel.close()
    reset.stream.cancel()
    wanted = ['segment="from_agent",code="Canceled",packet_type="Unknown"} 2']
    stage.eventually(lambda: server_errors(server) == wanted)


def test_an_agent_counts_a_server_that_is_lost_and_not_one_that_ends_the_stream(stage: Stage) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    server.accept().finish()
    second = server.accept()
    assert agent_errors(agent) == []
    stage.eventually(agent.agent.is_ready)
    second.channel.close()
    wanted = ['segment="to_agent",code="Unavailable",packet_type="Unknown"} 1']
    stage.eventually(lambda: agent_errors(agent) == wanted)
    server.accept()
