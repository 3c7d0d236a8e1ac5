"""The agents on nodes."""

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.agent_daemon_set import agent_daemon_set
from umbilical.assets.hosted.spec import Agents, DataPlaneProxy, HostedSpec, Leases, ServerCount
from umbilical.assets.objects import Object


def pod(spec: HostedSpec) -> Object:
    found: Object = agent_daemon_set(spec, "sum")["spec"]["template"]["spec"]
    return found


def flags(spec: HostedSpec) -> list[str]:
    found: list[str] = pod(spec)["containers"][0]["args"]
    return found


def test_it_stands_where_hypershift_puts_it() -> None:
    found = agent_daemon_set(hosted_spec(), "sum")
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "konnectivity-agent")
    assert found["spec"]["selector"] == {"matchLabels": {"app": "konnectivity-agent"}}
    assert found["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}


def test_it_dials_what_was_published() -> None:
    assert {"--proxy-server-host=konnectivity.guest.example", "--proxy-server-port=443"} <= set(flags(hosted_spec()))
    assert "--agent-identifiers=default-route=true" in flags(hosted_spec())


def test_it_runs_on_every_node_from_the_first_minute() -> None:
    found = pod(hosted_spec())
    assert found["tolerations"] == [{"operator": "Exists"}]
    assert (found["hostNetwork"], found["dnsPolicy"]) == (True, "Default")
    assert found["priorityClassName"] == "system-node-critical"


def test_on_the_hosts_network_health_is_asked_and_told_on_loopback() -> None:
    assert "--health-server-host=127.0.0.1" in flags(hosted_spec())
    container = pod(hosted_spec())["containers"][0]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["host"] == "127.0.0.1"


def test_in_the_pod_network_health_is_asked_at_the_pod() -> None:
    spec = hosted_spec(agents=Agents(host_network=False, dns_policy="ClusterFirst"))
    assert "--health-server-host=0.0.0.0" in flags(spec)
    assert "host" not in pod(spec)["containers"][0]["livenessProbe"]["httpGet"]
    assert pod(spec)["dnsPolicy"] == "ClusterFirst"


def test_it_runs_as_nobody_special_and_without_a_token() -> None:
    found = pod(hosted_spec())
    assert found["securityContext"]["runAsUser"] == 1000
    assert found["containers"][0]["securityContext"]["runAsNonRoot"] is True
    assert found["automountServiceAccountToken"] is False
    assert found["serviceAccountName"] == "konnectivity-agent"


def test_leases_are_counted_with_a_token_and_never_below_a_servers_word() -> None:
    spec = hosted_spec(server_count=ServerCount.LEASES, leases=Leases("secret"))
    wanted = {"--count-server-leases=true", "--server-count-source=max", "--lease-namespace=kube-system"}
    assert wanted <= set(flags(spec))
    assert pod(spec)["automountServiceAccountToken"] is True
    assert not [flag for flag in flags(hosted_spec()) if "lease" in flag]


@pytest.mark.parametrize("url", ["http://proxy:3128", "http://user:hunter2@proxy:3128"])
def test_the_users_proxy_comes_from_a_secret_and_is_not_in_the_manifest(url: str) -> None:
    spec = hosted_spec(proxy=DataPlaneProxy(https=url))
    assert pod(spec)["containers"][0]["envFrom"] == [{"secretRef": {"name": "konnectivity-data-plane-proxy"}}]
    assert "proxy:3128" not in str(agent_daemon_set(spec, "sum"))
    assert "envFrom" not in pod(hosted_spec())["containers"][0]
