"""The server's static pod."""

from pathlib import Path
from typing import Any, Final

from hypothesis import given
from tests.support.tunnel_specs import tunnel_specs

from umbilical.assets.certificates import Certificates
from umbilical.assets.manifests import placeholders
from umbilical.assets.manifests.container import PKI_MOUNT
from umbilical.assets.manifests.server_pod import server_pod
from umbilical.assets.spec import Shape, TunnelSpec, for_shape
from umbilical.cli import klog
from umbilical.cli.pflag import FlagSet
from umbilical.cli.server_flags import check_server_flags, server_flags
from umbilical.pki.bundle import KeyPair

PKI: Final = "/opt/openshift/umbilical/pki/server"


def container(spec: TunnelSpec) -> dict[str, Any]:
    (only,) = server_pod(spec, PKI)["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def flags(arguments: list[str]) -> FlagSet:
    parsed = FlagSet("proxy-server", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


@given(tunnel_specs(*Shape))
def test_the_server_takes_its_flags(spec: TunnelSpec) -> None:
    parsed = flags(container(spec)["args"])
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
    (mount,) = [mount for mount in container(spec)["volumeMounts"] if mount["name"] == "socket"]
    assert not mount.get("readOnly", False)
    assert spec.socket_on_host.startswith(f"{mount['mountPath']}/")


def test_its_flags_pass_the_servers_own_checks(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    arguments = container(for_shape(Shape.OPENSHIFT))["args"]
    check_server_flags(flags([argument.replace(PKI_MOUNT, str(tmp_path)) for argument in arguments]))


def test_only_the_servers_own_files_are_mounted_and_not_for_writing() -> None:
    pod = server_pod(for_shape(Shape.OPENSHIFT), PKI)["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "pki"]
    assert volume["hostPath"] == {"path": PKI, "type": "Directory"}
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "pki"]
    assert mount["readOnly"] is True


def test_it_is_root_without_any_capability() -> None:
    context = container(for_shape(Shape.OPENSHIFT))["securityContext"]
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
    assert "readinessProbe" not in container(for_shape(Shape.OPENSHIFT))
    assert container(for_shape(Shape.OPENSHIFT))["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 2041}


def test_a_certificate_that_is_made_once_needs_no_mark_in_the_pod() -> None:
    pod = server_pod(for_shape(Shape.OPENSHIFT), PKI, is_made_once=True)
    assert "annotations" not in pod["metadata"]
