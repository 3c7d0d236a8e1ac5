"""Static pods of server and agent: what they mount, what they may, and what the kubelet asks."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from umbilical.fault import RenderError
from umbilical.manifests.daemon_pod import PodPlace, daemon_pod
from umbilical.manifests.systemd_units import ServiceUnit, UnitOption

SERVER = ServiceUnit(
    name="umbilical-server",
    description="A server",
    command=("umbilical", "server", "run"),
    options=(
        UnitOption("--agent-cert", "/etc/umbilical/pki/server.crt", is_file=True),
        UnitOption("--agent-key", "/etc/umbilical/pki/server.key", is_file=True),
        UnitOption("--agent-identities", "/etc/umbilical/rules/all", is_file=True),
        UnitOption("--id", "$(HOSTNAME) costs 5$"),
        UnitOption("--publish-lease"),
    ),
    stop_seconds=60.0,
    socket_path="/run/umbilical/server.sock",
)
PLACE = PodPlace("registry.example/umbilical:1", "", 8092, "control-plane")


def pod(unit: ServiceUnit = SERVER, place: PodPlace = PLACE) -> dict[str, Any]:
    (asset,) = daemon_pod(unit, place)
    found: dict[str, Any] = yaml.safe_load(asset.content)
    return found


def container(unit: ServiceUnit = SERVER, place: PodPlace = PLACE) -> dict[str, Any]:
    (found,) = pod(unit, place)["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_it_is_named_after_the_daemon_beside_the_pods_of_kubeadm() -> None:
    assert [asset.path for asset in daemon_pod(SERVER, PLACE)] == ["umbilical-server.yaml"]
    metadata = pod()["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("umbilical-server", "kube-system")
    assert metadata["labels"] == {"component": "umbilical-server", "tier": "control-plane"}


def test_directories_are_mounted_once_and_only_the_sockets_is_writable() -> None:
    mounts = {mount["mountPath"]: mount["readOnly"] for mount in container()["volumeMounts"] if "readOnly" in mount}
    assert mounts == {"/run/umbilical": False, "/etc/umbilical/pki": True, "/etc/umbilical/rules": True}
    hosts = [volume["hostPath"] for volume in pod()["spec"]["volumes"] if "hostPath" in volume]
    assert hosts == [
        {"path": "/run/umbilical", "type": "DirectoryOrCreate"},
        {"path": "/etc/umbilical/pki", "type": "Directory"},
        {"path": "/etc/umbilical/rules", "type": "Directory"},
    ]
    logs = replace(SERVER, options=(UnitOption("--audit-file", "/var/log/umbilical/audit.jsonl", is_output=True),))
    assert container(logs)["volumeMounts"][0] == {
        "name": "logs",
        "mountPath": "/var/log/umbilical",
        "readOnly": False,
    }
    beside = replace(SERVER, socket_path="/etc/umbilical/pki/server.sock")
    paths = [mount["mountPath"] for mount in container(beside)["volumeMounts"]]
    assert paths == ["/etc/umbilical/pki", "/etc/umbilical/rules", "/tmp"]


@pytest.mark.parametrize("path", ["/server.key", "/etc/server.key", "//etc//server.key"])
def test_a_directory_of_the_system_is_refused(path: str) -> None:
    with pytest.raises(RenderError, match="UMB214 the pod would get all of "):
        daemon_pod(replace(SERVER, options=(UnitOption("--agent-key", path, is_file=True),)), PLACE)
    with pytest.raises(RenderError, match="UMB214"):
        daemon_pod(replace(SERVER, socket_path=path), PLACE)


def test_dollars_of_arguments_stay_what_they_are() -> None:
    assert container()["args"] == [
        "server",
        "run",
        "--agent-cert=/etc/umbilical/pki/server.crt",
        "--agent-key=/etc/umbilical/pki/server.key",
        "--agent-identities=/etc/umbilical/rules/all",
        "--id=$$(HOSTNAME) costs 5$$",
        "--publish-lease",
    ]


@pytest.mark.parametrize(
    ("host", "asked"), [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.9", "10.0.0.9")]
)
def test_the_kubelet_asks_where_the_daemon_listens(host: str, asked: str) -> None:
    found = container(place=replace(PLACE, health_host=host, health_port=9000))
    questions = {name: found[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {(one["host"], one["port"]) for one in questions.values()} == {(asked, 9000)}
    assert {name: one["path"] for name, one in questions.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }


def test_it_is_root_without_capabilities_but_for_a_low_port() -> None:
    security = container()["securityContext"]
    assert security["runAsUser"] == 0
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    low = container(replace(SERVER, has_low_port=True))["securityContext"]
    assert low["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
