"""The agents' DaemonSet."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.support.tunnel_specs import tunnel_specs

from umbilical.assets.manifests import placeholders
from umbilical.assets.manifests.agent_daemon_set import agent_daemon_set
from umbilical.assets.manifests.agent_secret import agent_secret
from umbilical.assets.manifests.container import PKI_MOUNT
from umbilical.assets.spec import Resources, Shape, TunnelSpec, for_shape
from umbilical.cli import klog
from umbilical.cli.agent_flags import agent_flags, check_agent_flags
from umbilical.cli.pflag import FlagSet


def pod(spec: TunnelSpec) -> dict[str, Any]:
    template = agent_daemon_set(spec)["spec"]["template"]["spec"]
    assert isinstance(template, dict)
    return template


def flags(arguments: list[str]) -> FlagSet:
    parsed = FlagSet("proxy-agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def test_its_selector_finds_its_own_pods() -> None:
    made = agent_daemon_set(for_shape(Shape.OPENSHIFT))
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"]["openshift.io/bootstrap-only"] == "true"


def test_it_runs_on_every_node_whatever_its_taints() -> None:
    made = pod(for_shape(Shape.OPENSHIFT))
    assert made["tolerations"] == [{"operator": "Exists"}]
    assert made["priorityClassName"] == "system-node-critical"


def test_only_the_planned_shape_uses_the_hosts_network_and_resolver() -> None:
    assert "hostNetwork" not in pod(for_shape(Shape.OPENSHIFT))
    assert "dnsPolicy" not in pod(for_shape(Shape.OPENSHIFT))
    seed = pod(for_shape(Shape.SEED))
    assert (seed["hostNetwork"], seed["dnsPolicy"]) == (True, "Default")


def test_where_an_scc_chooses_the_user_we_do_not() -> None:
    assert set(pod(for_shape(Shape.OPENSHIFT))["securityContext"]) == {"runAsNonRoot", "seccompProfile"}
    for spec in (
        for_shape(Shape.SEED),
        for_shape(Shape.OPENSHIFT, namespace="kube-system"),
        for_shape(Shape.KUBERNETES),
    ):
        context = pod(spec)["securityContext"]
        assert context["runAsUser"] == context["fsGroup"] != 0


def test_the_key_is_readable_by_the_group_that_the_pod_gets_and_by_nobody_else() -> None:
    (volume,) = pod(for_shape(Shape.OPENSHIFT))["volumes"]
    assert volume["secret"]["defaultMode"] == 0o440


@given(tunnel_specs(*Shape))
def test_the_agent_takes_its_flags_and_they_name_keys_of_the_secret(spec: TunnelSpec) -> None:
    (container,) = pod(spec)["containers"]
    parsed = flags(container["args"])
    for name in ("ca-cert", "agent-cert", "agent-key"):
        path = Path(parsed.text(name))
        assert str(path.parent) == PKI_MOUNT == container["volumeMounts"][0]["mountPath"]
        assert path.name in agent_secret(spec)["data"]
    assert parsed.number("proxy-server-port") == spec.agent_port
    assert parsed.number("health-server-port") == container["livenessProbe"]["httpGet"]["port"] == spec.health_port
    assert parsed.seconds("sync-interval") <= parsed.seconds("sync-interval-cap")


def test_its_flags_pass_the_agents_own_checks(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    arguments = pod(for_shape(Shape.OPENSHIFT))["containers"][0]["args"]
    check_agent_flags(flags([argument.replace(PKI_MOUNT, str(tmp_path)) for argument in arguments]))


@pytest.mark.parametrize("address", ["10.0.0.9", "fd00::9"])
def test_agents_dial_the_given_address_or_wait_for_one(address: str) -> None:
    fixed = pod(for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address(address)))
    assert f"--proxy-server-host={address}" in fixed["containers"][0]["args"]
    found = pod(for_shape(Shape.OPENSHIFT))
    assert f"--proxy-server-host={placeholders.NODE_IP}" in found["containers"][0]["args"]


def test_requests_are_the_specs_and_there_are_no_limits() -> None:
    resources = pod(for_shape(Shape.OPENSHIFT, resources=Resources("1m", "2Mi")))["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1m", "memory": "2Mi"}}


def test_an_image_of_ones_own_is_run_by_its_path() -> None:
    container = pod(for_shape(Shape.OPENSHIFT, image="registry.example/own:1"))["containers"][0]
    assert (container["image"], container["command"]) == ("registry.example/own:1", ["proxy-agent"])
    payload = pod(for_shape(Shape.OPENSHIFT))["containers"][0]
    assert (payload["image"], payload["command"]) == (placeholders.IMAGE, ["/usr/bin/proxy-agent"])
