"""The manifests of a bootstrap tunnel: server, agents, and what lies beside them."""

import base64
import ipaddress
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from tests.support.tunnel_specs import tunnel_specs

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.render import objects
from umbilical.bootstrap.render.kube_apiserver import egress_selector, kube_apiserver_override
from umbilical.bootstrap.render.objects import (
    PKI_MOUNT,
    agent_daemon_set,
    agent_secret,
    container,
    namespace,
    server_pod,
)
from umbilical.bootstrap.spec import Mode, Resources, Shape, TunnelSpec, for_shape
from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_agent import agent_flags, check_agent_flags
from umbilical.cli.drop_ins.proxy_server import check_server_flags, server_flags
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.pem import KeyPair

PKI: Final = "/opt/openshift/umbilical/pki/server"
OPENSHIFT: Final = for_shape(Shape.OPENSHIFT)
SEED: Final = for_shape(Shape.SEED)
PAIRS: Final = Certificates(b"ca", KeyPair(b"server", b"server-key"), KeyPair(b"agent", b"agent-key"))


def server(spec: TunnelSpec = OPENSHIFT) -> dict[str, Any]:
    (only,) = server_pod(spec, PKI)["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def agents(spec: TunnelSpec = OPENSHIFT) -> dict[str, Any]:
    template = agent_daemon_set(spec)["spec"]["template"]["spec"]
    assert isinstance(template, dict)
    return template


def agent(spec: TunnelSpec = OPENSHIFT) -> dict[str, Any]:
    (only,) = agents(spec)["containers"]
    assert isinstance(only, dict)
    return only


def servers_flags(arguments: list[str]) -> FlagSet:
    parsed = FlagSet("proxy-server", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def agents_flags(arguments: list[str]) -> FlagSet:
    parsed = FlagSet("proxy-agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


@settings(max_examples=60)
@given(tunnel_specs(*Shape))
def test_the_server_takes_its_flags_and_its_socket_is_in_a_directory_of_the_host(spec: TunnelSpec) -> None:
    parsed = servers_flags(server(spec)["args"])
    assert parsed.text("uds-name") == spec.socket_on_host
    assert parsed.number("server-port") == 0
    assert parsed.text("mode") == spec.mode.value
    ports = [parsed.number(f"{name}-port") for name in ("agent", "health", "admin")]
    assert ports == [spec.agent_port, spec.health_port, spec.admin_port]
    (volume,) = [volume for volume in server_pod(spec, PKI)["spec"]["volumes"] if volume["name"] == "socket"]
    assert volume["hostPath"] == {"path": spec.socket_directory, "type": "DirectoryOrCreate"}
    (mount,) = [mount for mount in server(spec)["volumeMounts"] if mount["name"] == "socket"]
    assert not mount.get("readOnly", False)
    assert spec.socket_on_host.startswith(f"{mount['mountPath']}/")


@settings(max_examples=60)
@given(tunnel_specs(*Shape))
def test_the_agent_takes_its_flags_and_they_name_keys_of_the_secret(spec: TunnelSpec) -> None:
    made = agent(spec)
    parsed = agents_flags(made["args"])
    for name in ("ca-cert", "agent-cert", "agent-key"):
        path = Path(parsed.text(name))
        assert str(path.parent) == PKI_MOUNT == made["volumeMounts"][0]["mountPath"]
        assert path.name in agent_secret(spec)["data"]
    assert parsed.number("proxy-server-port") == spec.agent_port
    assert parsed.number("health-server-port") == made["livenessProbe"]["httpGet"]["port"] == spec.health_port
    assert parsed.seconds("sync-interval") <= parsed.seconds("sync-interval-cap")


def test_the_flags_pass_the_checks_of_both_programs(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    check_server_flags(servers_flags([word.replace(PKI_MOUNT, str(tmp_path)) for word in server()["args"]]))
    check_agent_flags(agents_flags([word.replace(PKI_MOUNT, str(tmp_path)) for word in agent()["args"]]))


def test_only_the_servers_own_files_are_mounted_and_not_for_writing() -> None:
    (volume,) = [volume for volume in server_pod(OPENSHIFT, PKI)["spec"]["volumes"] if volume["name"] == "pki"]
    assert volume["hostPath"] == {"path": PKI, "type": "Directory"}
    (mount,) = [mount for mount in server()["volumeMounts"] if mount["name"] == "pki"]
    assert mount["readOnly"] is True


def test_the_server_is_root_without_any_capability_and_never_asked_whether_it_is_ready() -> None:
    context = server()["securityContext"]
    assert (context["runAsUser"], context["capabilities"]) == (0, {"drop": ["ALL"]})
    assert context["allowPrivilegeEscalation"] is False
    assert "readinessProbe" not in server()
    assert server()["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 2041}


def test_a_new_certificate_gives_another_server_pod_unless_it_is_made_once() -> None:
    def annotations(certificate: bytes) -> object:
        given_pairs = Certificates(b"ca", KeyPair(certificate, b"key"), KeyPair(b"agent", b"key"))
        return server_pod(OPENSHIFT, PKI, given_pairs)["metadata"]["annotations"]

    assert annotations(b"one") != annotations(b"two")
    unknown = server_pod(OPENSHIFT, PKI)["metadata"]["annotations"]
    assert list(unknown.values()) == [objects.SERVER_FINGERPRINT]
    assert "annotations" not in server_pod(OPENSHIFT, PKI, is_made_once=True)["metadata"]


def test_agents_run_on_every_node_and_use_its_network_in_the_planned_shape_alone() -> None:
    made = agent_daemon_set(OPENSHIFT)
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"]["openshift.io/bootstrap-only"] == "true"
    assert agents()["tolerations"] == [{"operator": "Exists"}]
    assert agents()["priorityClassName"] == "system-node-critical"
    assert not {"hostNetwork", "dnsPolicy"} & agents().keys()
    assert (agents(SEED)["hostNetwork"], agents(SEED)["dnsPolicy"]) == (True, "Default")


def test_where_an_scc_chooses_the_user_we_do_not_and_its_group_alone_reads_the_key() -> None:
    assert set(agents()["securityContext"]) == {"runAsNonRoot", "seccompProfile"}
    for spec in (SEED, for_shape(Shape.OPENSHIFT, namespace="kube-system"), for_shape(Shape.KUBERNETES)):
        context = agents(spec)["securityContext"]
        assert context["runAsUser"] == context["fsGroup"] != 0
    (volume,) = agents()["volumes"]
    assert volume["secret"]["defaultMode"] == 0o440


def test_agents_dial_the_given_address_or_wait_for_one() -> None:
    for address in ("10.0.0.9", "fd00::9"):
        fixed = agent(for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address(address)))
        assert f"--proxy-server-host={address}" in fixed["args"]
    assert f"--proxy-server-host={objects.NODE_IP}" in agent()["args"]


def test_an_image_of_ones_own_is_run_by_its_name_and_the_payloads_by_its_path() -> None:
    own = agent(for_shape(Shape.OPENSHIFT, image="registry.example/own:1"))
    assert (own["image"], own["command"]) == ("registry.example/own:1", ["proxy-agent"])
    assert (agent()["image"], agent()["command"]) == (objects.IMAGE, ["/usr/bin/proxy-agent"])


def test_what_one_container_has_beyond_the_other_is_added_and_takes_nothing_away() -> None:
    spec = for_shape(Shape.OPENSHIFT, resources=Resources("70m", "80Mi"), health_port=2042)
    socket = {"name": "socket", "mountPath": "/s"}
    made = container(spec, "a", "p", ["--x"], security={"runAsUser": 0}, mounts=[socket])
    assert made["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 2042}
    assert made["resources"] == {"requests": {"cpu": "70m", "memory": "80Mi"}}
    assert made["args"] == ["--x"]
    assert made["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
    }
    assert [mount["mountPath"] for mount in made["volumeMounts"]] == ["/s", PKI_MOUNT]


def test_the_secret_has_placeholders_or_the_agents_pair_and_can_be_found_for_deletion() -> None:
    secret = agent_secret(OPENSHIFT)
    assert secret["type"] == "Opaque"
    assert secret["data"] == {
        "tls.crt": objects.AGENT_CERTIFICATE,
        "tls.key": objects.AGENT_KEY,
        "ca.crt": objects.AUTHORITY,
    }
    decoded = {name: base64.b64decode(value) for name, value in agent_secret(SEED, PAIRS)["data"].items()}
    assert decoded == {"tls.crt": b"agent", "tls.key": b"agent-key", "ca.crt": b"ca"}
    metadata = agent_secret(SEED)["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("konnectivity-agent-certs", "kube-system")
    assert metadata["labels"]["openshift.io/bootstrap-only"] == "true"


@settings(max_examples=40)
@given(tunnel_specs(*Shape))
def test_the_cluster_is_reached_through_the_socket_and_everything_else_goes_its_own_way(spec: TunnelSpec) -> None:
    protocol = {Mode.GRPC: "GRPC", Mode.HTTP_CONNECT: "HTTPConnect"}[spec.mode]
    transport = {"uds": {"udsName": spec.socket_in_kube_apiserver}}
    assert egress_selector(spec)["egressSelections"] == [
        {"name": "cluster", "connection": {"proxyProtocol": protocol, "transport": transport}},
        {"name": "controlplane", "connection": {"proxyProtocol": "Direct"}},
        {"name": "etcd", "connection": {"proxyProtocol": "Direct"}},
    ]


def test_the_namespace_is_deleted_by_its_label_and_as_strict_as_the_agents_allow() -> None:
    metadata = namespace(OPENSHIFT)["metadata"]
    assert metadata["name"] == "openshift-bootstrap-konnectivity"
    assert metadata["labels"]["openshift.io/bootstrap-only"] == "true"
    # A default node selector would keep agents away.
    assert metadata["annotations"] == {"openshift.io/node-selector": ""}
    for host_network, level in ((False, "restricted"), (True, "privileged")):
        labels = namespace(SEED.replace(namespace="tunnel", host_network=host_network))["metadata"]["labels"]
        assert [labels[f"pod-security.kubernetes.io/{kind}"] for kind in ("enforce", "audit", "warn")] == [level] * 3


def test_the_override_says_where_the_egress_file_is_and_gos_template_engine_finds_nothing_to_do() -> None:
    assert kube_apiserver_override() == {
        "apiVersion": "kubecontrolplane.config.openshift.io/v1",
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {"egress-selector-config-file": ["/etc/kubernetes/config/egress-selector-config.yaml"]},
    }
    assert b"{{" not in yaml_bytes(kube_apiserver_override())
