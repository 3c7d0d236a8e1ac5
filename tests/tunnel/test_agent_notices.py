import logging

import pytest

from umbilical.konnectivity.commands import TellHealth, TellRedial, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentLink
from umbilical.tunnel import agent_notices


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, agent_notices.__name__)


def agent(agent_id: str = "a1", key: int = 1) -> AgentLink:
    return AgentLink(key, agent_id, AgentIdentifiers())


def test_a_sick_agent_is_a_warning_with_a_code_and_its_recovery_is_none(caplog: pytest.LogCaptureFixture) -> None:
    link = agent()
    link.sick = True
    agent_notices.tell_health(TellHealth(link, "3 dials in a row got no answer"))
    link.sick = False
    agent_notices.tell_health(TellHealth(link, "it answers dials again"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "UMB412 agent is last choice agent=a1 tunnels=0 dials=0: 3 dials in a row got no answer"),
        ("INFO", "agent is chosen again agent=a1: it answers dials again"),
    ]


def test_a_dial_that_moves_on_says_from_where_to_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    tunnel = Tunnel(object(), 7, "web:443", 0.0)
    tunnel.link = agent("a2", 2)
    agent_notices.tell_redial(TellRedial(tunnel, agent(), "agent lost: reset"))
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    text = "dial goes to another agent dial=7 target=web:443 from=a1 to=a2: agent lost: reset"
    assert record.getMessage() == text


def test_text_that_is_no_network_is_quoted_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    agent_notices.tell_networks(agent(), ["10/8", "x\n" * 1_000])
    message = caplog.messages[0]
    assert message.startswith("UMB413 agent=a1: cidr identifiers that are no networks: '10/8, x\\n")
    assert len(message) < 600
    assert "\n" not in message
