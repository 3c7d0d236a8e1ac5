"""Looks at the parts of a hosted control plane: what they say when things are not as they should be."""

from typing import Any

import pytest

from umbilical.lab import hosted_parts
from umbilical.lab.hosted_stage import HTTPS, SERVERS, HostedStage, complaint
from umbilical.lab.lab import ProcessStatus
from umbilical.lab.nft import spread
from umbilical.lab.proxied_calls import say
from umbilical.lab.story import Story
from umbilical.lab.waiting import NotYet

METRICS = """# HELP x y
konnectivity_network_proxy_server_established_connections 3
umbilical_certificate_reloads_total{role="agents",result="success"} 1
umbilical_certificate_reloads_total{role="clients",result="success"} 2
umbilical_certificate_reloads_total{role="clients",result="failure"} 4
"""


class _Lab:
    def __init__(self) -> None:
        self.topology = hosted_parts.topology()
        self.files = {("bootstrap", "/etc/hosts"): b"127.0.0.1 localhost\n"}
        self.rules: dict[tuple[str, str], str] = {}
        self.logs: dict[tuple[str, str], str] = {}
        self.rows: list[ProcessStatus] = []

    def read(self, node: str, path: str) -> bytes:
        return self.files[node, path]

    def write(self, node: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self.files[node, path] = content

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        self.rules[node, name] = ruleset

    def log(self, node: str, name: str) -> str:
        return self.logs.get((node, name), "")

    def processes(self) -> list[ProcessStatus]:
        return self.rows


class _Scene:
    def __init__(self) -> None:
        self.lab = _Lab()
        self.story = Story("test")
        self.answer: str | None = METRICS

    def fetch(self, node: str, url: str) -> str | None:
        return self.answer

    def wait(self, what: str, look: Any, seconds: float) -> Any:
        return look()


@pytest.fixture
def scene() -> _Scene:
    return _Scene()


@pytest.fixture
def stage(scene: _Scene) -> HostedStage:
    return HostedStage(scene)  # type: ignore[arg-type]


def test_a_metric_is_the_sum_of_what_has_the_labels(stage: HostedStage) -> None:
    name = "umbilical_certificate_reloads_total"
    assert stage.metric(HTTPS, name) == 7
    assert stage.metric(HTTPS, name, 'result="success"') == 3
    assert stage.metric(HTTPS, name, 'role="clients"', 'result="failure"') == 4
    assert stage.open_tunnels("management-0") == 3


def test_a_part_that_does_not_answer_is_named(stage: HostedStage, scene: _Scene) -> None:
    scene.answer = None
    with pytest.raises(NotYet, match="the server on management-0 does not tell its metrics"):
        stage.metric(SERVERS["management-0"], "x")


def test_agents_without_all_servers_are_named(stage: HostedStage, scene: _Scene) -> None:
    scene.answer = "konnectivity_network_proxy_agent_open_server_connections 2\n"
    with pytest.raises(NotYet, match="worker-0's agent has 2 servers"):
        stage.wait_for_agents(["worker-0"])
    stage.wait_for_agents(["worker-0"], servers=2)


def test_kube_apiserver_finds_the_servers_by_one_name_whatever_stands_behind_it(
    stage: HostedStage, scene: _Scene
) -> None:
    for servers in (["management-0", "management-1"], ["management-1"]):
        stage.lead_kube_apiserver(servers)
        targets = [stage.topology.node(name).addresses[0].ip for name in servers]
        front = stage.topology.management.networks[0][90]  # type: ignore[union-attr]
        assert scene.lab.rules["bootstrap", "front"] == spread(front, 8090, targets)
    hosts = scene.lab.files["bootstrap", "/etc/hosts"].decode().splitlines()
    assert hosts == ["127.0.0.1 localhost", "192.168.91.90 konnectivity-server-local"]


def test_calls_are_waited_for_in_every_way_and_the_last_failure_is_told(
    stage: HostedStage, scene: _Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = hosted_parts.ways()
    for name in ("socks5", "connect"):
        say({"way": name, "began": 5.0, "ended": 6.0, "failure": ""})
    say({"way": "plain", "began": 5.0, "ended": 6.0, "failure": "Refused: 502"})
    scene.lab.logs[hosted_parts.CLIENT_NODE, "calls"] = capsys.readouterr().out
    with pytest.raises(NotYet, match="no call through plain was answered; plain: Refused: 502"):
        stage.wait_for_calls("calls", ways, 4.0)
    with pytest.raises(NotYet, match="no call through socks5, connect, plain"):
        stage.wait_for_calls("calls", ways, 5.0)
    stage.wait_for_calls("calls", {"socks5": ways["socks5"]}, 4.0)


def test_the_last_process_of_a_name_counts(stage: HostedStage, scene: _Scene) -> None:
    scene.lab.rows = [ProcessStatus("a", "server", 1, 0), ProcessStatus("a", "server", 2, None)]
    assert stage.process("a", "server").pid == 2
    with pytest.raises(NotYet, match="still runs"):
        stage.wait_until_gone("a", "server")


def test_a_complaint_says_where_to_look() -> None:
    fault = complaint("what", "why")
    assert fault.code == "UMB858"
    assert "--keep hosted" in fault.remedy
