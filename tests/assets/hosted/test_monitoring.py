"""Where Prometheus is told to look, and where it is not."""

from typing import Any

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.components import HEALTH_PORTS
from umbilical.assets.hosted.monitoring import PROXY_PORTS, hosted_monitors, monitors
from umbilical.assets.hosted.spec import Agents, HostedSpec, KubeApiserver, Monitoring


def by_kind(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def management(spec: HostedSpec) -> dict[tuple[str, str], dict[str, Any]]:
    return by_kind(monitors(spec))


def test_servers_are_scraped_one_by_one_and_also_before_they_are_ready() -> None:
    service = management(hosted_spec())["Service", "konnectivity-server-metrics"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"app": "kube-apiserver"}
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [2041]


def test_the_service_s_selector_follows_the_labels_of_kube_apiserver() -> None:
    spec = hosted_spec(kube_apiserver=KubeApiserver(labels={"tier": "api"}))
    assert management(spec)["Service", "konnectivity-server-metrics"]["spec"]["selector"] == {"tier": "api"}


def test_the_monitor_of_servers_selects_exactly_its_service() -> None:
    objects = management(hosted_spec())
    service = objects["Service", "konnectivity-server-metrics"]
    monitor = objects["ServiceMonitor", "konnectivity-server"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert "app" in wanted
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_the_control_plane_agent_is_scraped_where_there_is_one() -> None:
    assert ("PodMonitor", "konnectivity-agent") in management(hosted_spec())
    assert ("PodMonitor", "konnectivity-agent") not in management(hosted_spec(aggregated_apis=()))


def test_sidecars_are_scraped_on_their_health_ports_where_there_are_some() -> None:
    monitor = management(hosted_spec())["PodMonitor", "konnectivity-proxies"]
    assert tuple(endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]) == PROXY_PORTS
    assert sorted(f"{kind.value}-health" for kind in HEALTH_PORTS) == sorted(PROXY_PORTS)
    assert ("PodMonitor", "konnectivity-proxies") not in management(hosted_spec(components=()))


def test_agents_on_the_nodes_loopback_get_no_monitor_that_could_only_fail() -> None:
    assert hosted_monitors(hosted_spec()) == []
    (monitor,) = hosted_monitors(hosted_spec(agents=Agents(host_network=False)))
    assert (monitor["kind"], monitor["metadata"]["namespace"]) == ("PodMonitor", "kube-system")


def test_without_monitoring_there_is_nothing() -> None:
    spec = hosted_spec(monitoring=Monitoring(enabled=False), agents=Agents(host_network=False))
    assert monitors(spec) == hosted_monitors(spec) == []
