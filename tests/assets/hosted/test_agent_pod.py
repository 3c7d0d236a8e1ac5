"""What all agents have in common."""

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.agent_pod import agent_container, agent_flags, agent_volumes, pod_template
from umbilical.assets.hosted.spec import Server
from umbilical.cli import klog
from umbilical.cli.agent_flags import agent_flags as table
from umbilical.cli.agent_flags import check_agent_flags
from umbilical.cli.pflag import FlagSet

FLAGS = agent_flags("tunnel.example", 443, "default-route=true", "127.0.0.1")


def test_every_flag_is_one_that_the_agent_knows() -> None:
    known = FlagSet("proxy-agent", table(), klog.FLAGS)
    known.parse([flag for flag in FLAGS if "/etc/" not in flag])
    check_agent_flags(known)
    assert known.text("proxy-server-host") == "tunnel.example"


def test_agents_never_stop_looking_for_servers() -> None:
    assert "--sync-forever=true" in FLAGS


def test_identifiers_and_intervals_are_hypershifts_but_servers_are_looked_for_more_often() -> None:
    wanted = {"--keepalive-time=30s", "--probe-interval=5s", "--sync-interval=1s", "--sync-interval-cap=10s"}
    assert wanted | {"--agent-identifiers=default-route=true", "--health-server-port=2041"} <= set(FLAGS)
    assert "--health-server-host=127.0.0.1" in FLAGS
    assert not [flag for flag in agent_flags("a", 1, "x") if flag.startswith("--health-server-host")]


def test_an_agent_is_ready_once_a_server_is_reached_and_alive_before() -> None:
    container = agent_container(hosted_spec(), FLAGS)
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert (container["readinessProbe"]["periodSeconds"], container["readinessProbe"]["failureThreshold"]) == (30, 1)
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert (container["livenessProbe"]["periodSeconds"], container["livenessProbe"]["failureThreshold"]) == (30, 6)
    assert (container["startupProbe"]["periodSeconds"], container["startupProbe"]["failureThreshold"]) == (5, 60)
    assert container["resources"]["requests"] == {"cpu": "40m", "memory": "50Mi"}


def test_a_port_is_declared_where_it_is_not_taken_from_the_node() -> None:
    assert [port["containerPort"] for port in agent_container(hosted_spec(), FLAGS)["ports"]] == [2041]
    assert "ports" not in agent_container(hosted_spec(), FLAGS, "127.0.0.1")


def test_an_agent_sees_of_all_authorities_the_one_that_it_needs() -> None:
    volume = agent_volumes("secret", "cluster-ca.crt")[1]
    assert volume["configMap"]["items"] == [{"key": "cluster-ca.crt", "path": "ca.crt"}]


def test_new_certificates_restart_agents_that_read_them_only_once() -> None:
    upstream = pod_template(hosted_spec(server=Server.UPSTREAM), {}, "sum")
    assert upstream["metadata"]["annotations"] == {"umbilical.dev/certificates-sha256": "sum"}
    assert "annotations" not in pod_template(hosted_spec(), {}, "sum")["metadata"]
