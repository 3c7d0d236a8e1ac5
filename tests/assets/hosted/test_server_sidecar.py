"""The server's container: HyperShift's, with what was wrong mended."""

from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.server_sidecar import (
    DRAIN_SECONDS,
    GRACE_SECONDS,
    STOP_DELAY_SECONDS,
    client_mounts,
    pod_volumes,
    server_container,
    server_flags,
)
from umbilical.assets.hosted.spec import HostedSpec, Leases, Pki, Server, ServerCount, TlsProfile
from umbilical.cli import klog
from umbilical.cli.pflag import FlagSet
from umbilical.cli.server_flags import server_flags as table
from umbilical.pki.hosted_table import Signers

SPECS = {
    "plain": hosted_spec(),
    "upstream": hosted_spec(server=Server.UPSTREAM),
    "leases": hosted_spec(server_count=ServerCount.LEASES, leases=Leases("servers-kubeconfig")),
    "modern": hosted_spec(tls_profile=TlsProfile.MODERN),
    "single signer": hosted_spec(pki=Pki(signers=Signers.SINGLE)),
    "one replica": hosted_spec(replicas=1),
}
EVERY_SPEC = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def flags(spec: HostedSpec) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in server_flags(spec))


@EVERY_SPEC
def test_the_agents_authority_is_always_there_cve_2026_16242(spec: HostedSpec) -> None:
    path = flags(spec)["cluster-ca-cert"]
    assert path == "/etc/konnectivity/ca/cluster-client-ca.crt"
    folders = [mount["mountPath"] for mount in server_container(spec)["volumeMounts"]]
    assert path.rpartition("/")[0] in folders


@EVERY_SPEC
def test_agents_and_clients_are_known_by_different_files(spec: HostedSpec) -> None:
    found = flags(spec)
    assert found["server-ca-cert"] == "/etc/konnectivity/ca/server-client-ca.crt"
    assert found["server-ca-cert"] != found["cluster-ca-cert"]


@EVERY_SPEC
def test_every_flag_is_one_that_the_server_knows(spec: HostedSpec) -> None:
    known = FlagSet("proxy-server", table(), klog.FLAGS)
    known.parse(server_flags(spec))
    assert known.number("server-count") == spec.replicas


def test_ports_mode_and_strategies_are_hypershifts() -> None:
    found = flags(hosted_spec())
    wanted = {
        "server-port": "8090",
        "agent-port": "8091",
        "health-port": "2041",
        "admin-port": "8093",
        "mode": "http-connect",
        "proxy-strategies": "destHost,defaultRoute",
        "keepalive-time": "30s",
        "frontend-keepalive-time": "30s",
        "tls-min-version": "VersionTLS12",
    }
    assert {name: found[name] for name in wanted} == wanted


def test_a_server_that_is_stopped_lets_tunnels_end_within_the_pods_time() -> None:
    assert flags(hosted_spec())["graceful-shutdown-timeout"] == f"{DRAIN_SECONDS}s"
    assert STOP_DELAY_SECONDS + DRAIN_SECONDS < GRACE_SECONDS
    assert server_container(hosted_spec())["lifecycle"]["preStop"]["exec"]["command"][-1] == "sleep 70"


def test_identities_are_bound_where_the_server_is_ours() -> None:
    assert flags(hosted_spec())["frontend-identities"] == "CN=konnectivity-client"
    assert flags(hosted_spec())["agent-identities"] == "/etc/konnectivity/identities/identities"


def test_upstreams_server_gets_no_flag_that_it_does_not_know() -> None:
    found = flags(hosted_spec(server=Server.UPSTREAM))
    assert not [name for name in found if "identities" in name]
    assert "agent-identities" not in {volume["name"] for volume in pod_volumes(hosted_spec(server=Server.UPSTREAM))}


def test_six_suites_of_tls_1_2_and_none_to_choose_of_1_3() -> None:
    assert len(flags(hosted_spec())["cipher-suites"].split(",")) == 6
    modern = flags(hosted_spec(tls_profile=TlsProfile.MODERN))
    assert modern["tls-min-version"] == "VersionTLS13"
    assert "cipher-suites" not in modern


def test_leases_take_a_kubeconfig_and_are_kept_in_the_hosted_cluster() -> None:
    spec = SPECS["leases"]
    found = flags(spec)
    assert found["enable-lease-controller"] == "true"
    assert found["lease-namespace"] == "kube-system"
    assert found["kubeconfig"] == "/etc/konnectivity/kubeconfig/kubeconfig"
    secrets = [volume["secret"]["secretName"] for volume in pod_volumes(spec) if "secret" in volume]
    assert "servers-kubeconfig" in secrets


def test_readiness_does_not_ask_for_agents_or_kube_apiserver_would_never_be_ready() -> None:
    container = server_container(hosted_spec())
    for probe, timing in (
        ("readinessProbe", {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}),
        (
            "livenessProbe",
            {"initialDelaySeconds": 120, "periodSeconds": 60, "timeoutSeconds": 30, "failureThreshold": 3},
        ),
    ):
        found: dict[str, Any] = dict(container[probe])
        assert found.pop("httpGet") == {"path": "/healthz", "port": 2041, "scheme": "HTTP"}
        assert found == timing


@EVERY_SPEC
def test_every_mount_has_its_volume_and_every_volume_its_mount(spec: HostedSpec) -> None:
    mounted = {mount["name"] for mount in (*server_container(spec)["volumeMounts"], *client_mounts())}
    assert {volume["name"] for volume in pod_volumes(spec)} == mounted


def test_the_container_has_no_privilege_and_requests_as_hypershift_has_them() -> None:
    container = server_container(hosted_spec())
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"] == {"requests": {"cpu": "10m", "memory": "50Mi"}}
    assert (container["name"], container["command"]) == ("konnectivity-server", ["/usr/bin/proxy-server"])
