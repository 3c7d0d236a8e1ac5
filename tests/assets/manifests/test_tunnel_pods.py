"""The manifests of a bootstrap tunnel: server, agents, and what lies beside them."""

import base64
import ipaddress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from tests.support.tunnel_specs import tunnel_specs

from umbilical.assets.certificates import Certificates
from umbilical.assets.manifests import placeholders
from umbilical.assets.manifests.agent_daemon_set import agent_daemon_set
from umbilical.assets.manifests.agent_secret import agent_secret
from umbilical.assets.manifests.container import PKI_MOUNT, container
from umbilical.assets.manifests.egress import egress_selector
from umbilical.assets.manifests.namespace import namespace
from umbilical.assets.manifests.override import kube_apiserver_override
from umbilical.assets.manifests.server_pod import server_pod
from umbilical.assets.spec import Mode, Resources, Shape, TunnelSpec, for_shape
from umbilical.assets.tree import yaml_bytes
from umbilical.cli import klog
from umbilical.cli.agent_flags import agent_flags, check_agent_flags
from umbilical.cli.pflag import FlagSet
from umbilical.cli.server_flags import check_server_flags, server_flags
from umbilical.pki.bundle import KeyPair

PKI: Final = "/opt/openshift/umbilical/pki/server"


def server_container(spec: TunnelSpec) -> dict[str, Any]:
    (only,) = server_pod(spec, PKI)["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def flags(arguments: list[str]) -> FlagSet:
    parsed = FlagSet("proxy-server", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


@given(tunnel_specs(*Shape))
def test_the_server_takes_its_flags(spec: TunnelSpec) -> None:
    parsed = flags(server_container(spec)["args"])
    assert parsed.text("uds-name") == spec.socket_on_host
    assert parsed.number("server-port") == 0
    assert parsed.text("mode") == spec.mode.value
    ports = [parsed.number(f"{name}-port") for name in ("agent", "health", "admin")]
    assert ports == [spec.agent_port, spec.health_port, spec.admin_port]


@given(tunnel_specs(*Shape))
def test_its_socket_is_in_a_directory_of_the_host_that_it_may_write_to(spec: TunnelSpec) -> None:
    pod = server_pod(spec, PKI)["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "socket"]
    assert volume["hostPath"] == {"path": spec.socket_directory, "type": "DirectoryOrCreate"}
    (mount,) = [mount for mount in server_container(spec)["volumeMounts"] if mount["name"] == "socket"]
    assert not mount.get("readOnly", False)
    assert spec.socket_on_host.startswith(f"{mount['mountPath']}/")


def test_its_flags_pass_the_servers_own_checks(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    arguments = server_container(for_shape(Shape.OPENSHIFT))["args"]
    check_server_flags(flags([argument.replace(PKI_MOUNT, str(tmp_path)) for argument in arguments]))


def test_only_the_servers_own_files_are_mounted_and_not_for_writing() -> None:
    pod = server_pod(for_shape(Shape.OPENSHIFT), PKI)["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "pki"]
    assert volume["hostPath"] == {"path": PKI, "type": "Directory"}
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "pki"]
    assert mount["readOnly"] is True


def test_it_is_root_without_any_capability() -> None:
    context = server_container(for_shape(Shape.OPENSHIFT))["securityContext"]
    assert context["runAsUser"] == 0
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False


def test_a_new_certificate_gives_another_manifest() -> None:
    def annotations(certificate: bytes) -> dict[str, str]:
        given = Certificates(b"ca", KeyPair(certificate, b"key"), KeyPair(b"agent", b"key"))
        made = server_pod(for_shape(Shape.OPENSHIFT), PKI, given)["metadata"]["annotations"]
        assert isinstance(made, dict)
        return made

    assert annotations(b"one") != annotations(b"two")
    unknown = server_pod(for_shape(Shape.OPENSHIFT), PKI)["metadata"]["annotations"]
    assert list(unknown.values()) == [placeholders.SERVER_FINGERPRINT]


def test_it_has_no_readiness_probe() -> None:
    assert "readinessProbe" not in server_container(for_shape(Shape.OPENSHIFT))
    assert server_container(for_shape(Shape.OPENSHIFT))["livenessProbe"]["httpGet"] == {
        "path": "/healthz",
        "port": 2041,
    }


def test_a_certificate_that_is_made_once_needs_no_mark_in_the_pod() -> None:
    pod = server_pod(for_shape(Shape.OPENSHIFT), PKI, is_made_once=True)
    assert "annotations" not in pod["metadata"]


def pod(spec: TunnelSpec) -> dict[str, Any]:
    template = agent_daemon_set(spec)["spec"]["template"]["spec"]
    assert isinstance(template, dict)
    return template


def flags_of_agent_daemon_set(arguments: list[str]) -> FlagSet:
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
    parsed = flags_of_agent_daemon_set(container["args"])
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
    check_agent_flags(flags_of_agent_daemon_set([argument.replace(PKI_MOUNT, str(tmp_path)) for argument in arguments]))


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


def test_what_the_node_makes_stands_as_placeholders() -> None:
    secret = agent_secret(for_shape(Shape.OPENSHIFT))
    assert secret["type"] == "Opaque"
    assert secret["data"] == {
        "tls.crt": placeholders.AGENT_CERTIFICATE,
        "tls.key": placeholders.AGENT_KEY,
        "ca.crt": placeholders.AUTHORITY,
    }


def test_given_certificates_are_in_it_and_the_servers_key_is_not() -> None:
    given = Certificates(b"ca", KeyPair(b"server", b"server-key"), KeyPair(b"agent", b"agent-key"))
    secret = agent_secret(for_shape(Shape.SEED), given)
    decoded = {name: base64.b64decode(value) for name, value in secret["data"].items()}
    assert decoded == {"tls.crt": b"agent", "tls.key": b"agent-key", "ca.crt": b"ca"}


def test_it_can_be_found_for_deletion() -> None:
    metadata = agent_secret(for_shape(Shape.SEED))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("konnectivity-agent-certs", "kube-system")
    assert metadata["labels"]["openshift.io/bootstrap-only"] == "true"


SPEC = for_shape(Shape.OPENSHIFT, resources=Resources("70m", "80Mi"), health_port=2042)


def test_the_payloads_program_is_named_by_its_path_and_anothers_is_searched_for() -> None:
    assert container(SPEC, "a", "proxy-agent", [])["command"] == ["/usr/bin/proxy-agent"]
    assert container(SPEC.replace(image="r.example/x:1"), "a", "proxy-agent", [])["command"] == ["proxy-agent"]


def test_health_and_requests_are_the_specs() -> None:
    made = container(SPEC, "a", "proxy-agent", ["--x"])

    assert made["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 2042}
    assert made["resources"] == {"requests": {"cpu": "70m", "memory": "80Mi"}}
    assert made["args"] == ["--x"]


def test_what_one_has_beyond_the_other_is_added_and_takes_nothing_away() -> None:
    made = container(SPEC, "a", "p", [], security={"runAsUser": 0}, mounts=[{"name": "socket", "mountPath": "/s"}])

    assert made["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
    }
    assert [mount["mountPath"] for mount in made["volumeMounts"]] == ["/s", PKI_MOUNT]


@pytest.mark.parametrize(("mode", "protocol"), [(Mode.GRPC, "GRPC"), (Mode.HTTP_CONNECT, "HTTPConnect")])
def test_the_cluster_is_reached_through_the_socket_in_the_servers_mode(mode: Mode, protocol: str) -> None:
    made = egress_selector(for_shape(Shape.OPENSHIFT, mode=mode))
    assert made["egressSelections"][0] == {
        "name": "cluster",
        "connection": {
            "proxyProtocol": protocol,
            "transport": {"uds": {"udsName": "/etc/kubernetes/config/konnectivity-server.socket"}},
        },
    }


@given(tunnel_specs(*Shape))
def test_everything_else_goes_its_own_way(spec: TunnelSpec) -> None:
    _, *others = egress_selector(spec)["egressSelections"]
    direct = {"proxyProtocol": "Direct"}
    assert others == [{"name": name, "connection": direct} for name in ("controlplane", "etcd")]


def test_it_carries_the_label_without_which_nothing_is_ever_deleted() -> None:
    made = namespace(for_shape(Shape.OPENSHIFT))
    assert made["metadata"]["name"] == "openshift-bootstrap-konnectivity"
    assert made["metadata"]["labels"]["openshift.io/bootstrap-only"] == "true"


def test_it_enforces_the_strictest_level_that_the_agents_fit() -> None:
    for host_network, level in ((False, "restricted"), (True, "privileged")):
        made = namespace(for_shape(Shape.SEED, namespace="tunnel", host_network=host_network))
        labels = made["metadata"]["labels"]
        assert [labels[f"pod-security.kubernetes.io/{kind}"] for kind in ("enforce", "audit", "warn")] == [level] * 3


def test_a_default_node_selector_keeps_no_agent_away() -> None:
    assert namespace(for_shape(Shape.OPENSHIFT))["metadata"]["annotations"] == {"openshift.io/node-selector": ""}


def test_it_says_where_the_egress_file_is_and_nothing_else() -> None:
    assert kube_apiserver_override() == {
        "apiVersion": "kubecontrolplane.config.openshift.io/v1",
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {
            "egress-selector-config-file": ["/etc/kubernetes/config/egress-selector-config.yaml"],
        },
    }


def test_gos_template_engine_finds_nothing_to_do() -> None:
    assert b"{{" not in yaml_bytes(kube_apiserver_override())
