"""`umbilical bootstrap render`, its options, files and certificates."""

import base64
import ipaddress
import json
import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from cryptography import x509
from tests.cli.native import options_of
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.install_directories import Directory

from umbilical.bootstrap.bootstrap_file import BootstrapFile
from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.spec import Mode, Resources, Shape, TunnelSpec, for_shape
from umbilical.cli.bootstrap.file import kibibytes, read_source, target_of
from umbilical.cli.bootstrap.options import (
    INSTALLER_NODE_IP,
    authority_options,
    refuse_authority,
    spec_from,
    spec_options,
)
from umbilical.cli.bootstrap.render import certificate_options, certificates_from, wants_certificates
from umbilical.fault import BootstrapError, Fault, RenderError
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

KUBE_APISERVER: Final = """
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers: [{name: kube-apiserver, image: kube-apiserver, command: [kube-apiserver, --v=2]}]
"""


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch: Patch) -> None:
    monkeypatch.delenv(INSTALLER_NODE_IP, raising=False)


@pytest.fixture
def render(umbilical: Run) -> Run:
    return partial(umbilical, "bootstrap", "render")


def test_each_file_is_written_with_its_mode_and_told_in_a_line(tmp_path: Path, render: Run) -> None:
    lines = [line.split() for line in render("--out", tmp_path / "out").lines]
    assert len(lines) == 8
    for mode, size, path in lines:
        file = tmp_path / "out" / path.lstrip("/")
        assert f"{file.stat().st_mode & 0o777:04o}" == mode
        assert file.stat().st_size == int(size)


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, render: Run) -> None:
    out = str(tmp_path / "out")
    render("--out", out)
    assert "UMB801" in render("--out", out, "--mode=http-connect", status=3).err
    egress = tmp_path / "out" / OWN.egress.lstrip("/")
    assert "GRPC" in egress.read_text()
    render("--out", out, "--mode=http-connect", "--overwrite")
    assert "HTTPConnect" in egress.read_text()


def test_a_dash_prints_every_yaml_document_and_no_script(render: Run) -> None:
    kinds = [document["kind"] for document in yaml.safe_load_all(render("--out", "-").out)]
    expected = ["EgressSelectorConfiguration", "KubeAPIServerConfig", "Pod", "Namespace", "Secret", "DaemonSet"]
    assert kinds == expected


def test_a_test_webhook_is_a_directory_to_apply_with_its_removal(tmp_path: Path, render: Run) -> None:
    told = render("--test-webhook", "registry.example/python:3", "--out", tmp_path / "out")
    values = [yaml.safe_load(path.read_bytes()) for path in sorted((tmp_path / "out").iterdir())]
    kinds = ["Namespace", "ServiceAccount", "Secret", "ConfigMap", "Pod", "Service", "ValidatingWebhookConfiguration"]
    assert [value["kind"] for value in values] == kinds
    assert {value["metadata"]["labels"]["umbilical.dev/test-webhook"] for value in values} == {"true"}
    assert values[4]["spec"]["containers"][0]["image"] == "registry.example/python:3"
    assert f"kubectl apply -f {tmp_path / 'out'}" in told.err
    assert "kubectl delete validatingwebhookconfigurations,namespaces -l umbilical.dev/test-webhook=true" in told.err
    assert "UMB110" in render("--test-webhook", "a b", "--out", "-", status=3).err


def test_kubernetes_changes_the_given_manifest(tmp_path: Path, render: Run) -> None:
    (tmp_path / "kube-apiserver.yaml").write_text(KUBE_APISERVER)
    arguments = ["--shape=kubernetes", f"--kube-apiserver={tmp_path / 'kube-apiserver.yaml'}"]
    arguments += ["--node-ip=10.0.0.5", "--image=registry.example/own:1", f"--out={tmp_path / 'out'}"]
    render(*arguments)
    written = tmp_path / "out/etc/kubernetes/manifests/kube-apiserver.yaml"
    command = yaml.safe_load(written.read_bytes())["spec"]["containers"][0]["command"]
    assert command[:2] == ["kube-apiserver", "--v=2"]
    assert command[2].startswith("--egress-selector-config-file=")
    assert (tmp_path / "out/etc/kubernetes/konnectivity/pki/tls.key").stat().st_mode & 0o777 == 0o600


def test_a_wish_that_cannot_be_met_changes_nothing(tmp_path: Path, render: Run) -> None:
    for arguments, code, status in (
        (["--agent-port=6443"], "UMB110", 3),
        (["--shape=kubernetes"], "UMB113", 3),
        (["--kube-apiserver=/nowhere"], "UMB113", 3),
        (["--shape=kubernetes", "--kube-apiserver=/nowhere", "--image=a", "--node-ip=10.0.0.5"], "UMB002", 3),
        (["--ca-cert=/nowhere", "--ca-key=/nowhere"], "UMB117", 3),
        (["--node-ip=10.0.0.5", "--ca-cert=/nowhere", "--ca-key=/nowhere"], "UMB152", 3),
        (["--ca-cert=/nowhere"], "UMB003", 3),
        (["--ca-key=/nowhere"], "UMB003", 3),
        (["--node-ip=nowhere"], "UMB001", 2),
        (["--shape=round"], "UMB001", 2),
    ):
        told = render(f"--out={tmp_path / 'out'}", *arguments, status=status)
        assert told.err.startswith(f"{code} ")
        assert len(told.err.splitlines()) == 3
        assert told.out == ""
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config())
    path.chmod(0o640)
    return path


def test_a_file_is_read_with_its_mode(config: Path) -> None:
    source = read_source(config, None)
    assert source == BootstrapFile(config, config.read_bytes(), 0o640)
    assert source.platform() is None


def test_a_directory_gives_its_file_and_platform_where_it_is_told(config: Path) -> None:
    assert read_source(None, config.parent).platform() is None
    Directory(config.parent).metadata(aws=None, gcp={})
    source = read_source(None, config.parent)
    assert source.path == config
    assert source.platform() == "gcp"


def test_neither_and_both_are_wrong_usage(config: Path) -> None:
    with pytest.raises(click.UsageError):
        read_source(None, None)
    with pytest.raises(click.UsageError):
        read_source(config, config.parent)


def test_what_is_missing_is_told_as_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="UMB002 could not read"):
        read_source(tmp_path / "none.ign", None)
    with pytest.raises(BootstrapError, match="UMB170"):
        read_source(None, tmp_path)


def test_a_fault_of_the_format_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.ign"
    path.write_text("{}")
    with pytest.raises(Fault, match=r"broken\.ign"):
        read_source(path, None).document()


def test_a_result_goes_where_the_user_said(config: Path, tmp_path: Path) -> None:
    by_file, by_directory = read_source(config, None), read_source(None, tmp_path)
    out = tmp_path / "out.ign"
    assert target_of(by_file, out, False) == out
    assert target_of(by_file, None, True) == config
    assert target_of(by_directory, None, False) == config
    assert target_of(by_directory, out, False) == out


def test_a_result_never_goes_where_the_user_did_not_say(config: Path) -> None:
    source = read_source(config, None)
    with pytest.raises(click.UsageError, match="for the result"):
        target_of(source, None, False)
    with pytest.raises(click.UsageError, match="give either --out or --in-place"):
        target_of(source, config.parent / "out", True)
    with pytest.raises(click.UsageError, match="use --in-place"):
        target_of(source, config.parent / "." / config.name, False)


@pytest.mark.root
def test_a_replaced_file_keeps_its_owner(config: Path) -> None:
    os.chown(config, 12345, 12346)
    read_source(config, None).write(config, b"new")
    assert (config.stat().st_uid, config.stat().st_gid) == (12345, 12346)
    assert config.read_bytes() == b"new"
    assert config.stat().st_mode & 0o777 == 0o640


def test_a_directory_that_cannot_be_written_to_is_told_as_a_fault(config: Path, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="UMB002 could not write"):
        read_source(config, None).write(tmp_path / "missing" / "out.ign", b"new")


def test_sizes_are_rounded() -> None:
    assert [kibibytes(count) for count in (0, 511, 512, 1536, 5 * 1024 * 1024)] == [
        *("0 KiB", "0 KiB", "1 KiB", "2 KiB", "5120 KiB")
    ]


@click.command()
@spec_options
def command(**options: Any) -> None:
    """Carry the options."""


def spec(*arguments: str) -> TunnelSpec:
    return spec_from(options_of(command, arguments))


def test_a_shape_alone_gives_its_defaults() -> None:
    for shape in list(Shape):
        assert spec("--shape", shape.value) == for_shape(shape)


def test_every_flag_reaches_its_field() -> None:
    arguments = "--shape=seed --mode=grpc --image=registry.example/own:1 --namespace=tunnel --node-ip=fd00::9"
    arguments += " --machine-network=fd00::/64 --machine-network=10.0.0.0/16 --agent-port=9091 --health-port=9092"
    arguments += " --strategies=default,destHost --cpu=1m --memory=2Mi --certificate-hours=3 --no-host-network"
    arguments += " --socket-dir=/etc/kubernetes/bootstrap-configs/tunnel"
    assert spec(*arguments.split()) == for_shape(
        Shape.SEED,
        mode=Mode.GRPC,
        image="registry.example/own:1",
        namespace="tunnel",
        node_ip=ipaddress.ip_address("fd00::9"),
        use_ipv6=True,
        machine_networks=(ipaddress.ip_network("fd00::/64"), ipaddress.ip_network("10.0.0.0/16")),
        agent_port=9091,
        health_port=9092,
        strategies=("default", "destHost"),
        resources=Resources("1m", "2Mi"),
        certificate_hours=3,
        host_network=False,
        socket_directory="/etc/kubernetes/bootstrap-configs/tunnel",
    )


def test_the_installers_own_variable_gives_the_address_or_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setenv(INSTALLER_NODE_IP, "10.0.0.9")
    assert spec().node_ip == ipaddress.ip_address("10.0.0.9")
    assert spec("--node-ip=10.0.0.8").node_ip == ipaddress.ip_address("10.0.0.8")
    assert spec("--node-ip=auto").node_ip is None
    monkeypatch.setenv(INSTALLER_NODE_IP, "bootstrap.example")
    with pytest.raises(click.UsageError, match=INSTALLER_NODE_IP):
        spec()


def test_what_no_agent_can_dial_is_refused() -> None:
    for address in (
        *("", "null", "[fd00::1]", "10.0.0.5:8091", "host.example"),
        *("0.0.0.0", "ff02::1", "fe80::1", "fd00::1%eth0"),
    ):
        with pytest.raises(click.BadParameter):
            spec("--node-ip", address)


def test_what_is_no_network_or_is_refused_by_the_spec_is_told() -> None:
    for network in ("10.0.0.5/16", "10.0.0.0/33", "lan", "fd00::1%a/128"):
        with pytest.raises(click.BadParameter):
            spec("--machine-network", network)
    for flag in ("--strategies=", "--image=", "--agent-port=80", "--namespace=A", "--socket-dir=/tmp"):
        with pytest.raises(RenderError, match="UMB110"):
            spec(flag)


def test_without_them_the_other_options_pass() -> None:
    options = {"ca_cert": None, "ca_key": None, "from_install_state": False, "image": "x"}
    assert refuse_authority(options) == {"image": "x"}


def test_each_that_is_used_is_named_and_the_reason_told() -> None:
    for used, named in (
        ({"ca_cert": "a", "ca_key": "b"}, "(--ca-cert, --ca-key)"),
        ({"from_install_state": True}, "(--from-install-state)"),
    ):
        with pytest.raises(Fault, match="UMB130") as refused:
            refuse_authority({**used, "image": "x"})
        assert named in refused.value.what


def test_they_are_understood_and_out_of_sight() -> None:
    @click.command()
    @authority_options
    def command(**options: object) -> None:
        """Do nothing."""

    context = command.make_context("command", ["--ca-cert", "a", "--from-install-state"])
    assert context.params == {"ca_cert": "a", "ca_key": None, "from_install_state": True}
    assert "--ca-cert" not in command.get_help(context)


NOW: Final = datetime.now(UTC).replace(microsecond=0)
ADDRESS: Final = ipaddress.ip_address("10.0.0.5")
SPEC: Final = for_shape(Shape.OPENSHIFT, node_ip=ADDRESS, certificate_hours=5)


@click.command()
@certificate_options
def certificates_command(**options: Any) -> None:
    """Carry the options."""


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("root-ca", NOW, timedelta(days=10), KeyType.ECDSA_P256)


@pytest.fixture
def ca_files(tmp_path: Path, authority: Authority) -> list[str]:
    for name, content in (("ca.crt", authority.pair.certificate), ("ca.key", authority.pair.key)):
        (tmp_path / name).write_bytes(content)
    return [f"--ca-cert={tmp_path / 'ca.crt'}", f"--ca-key={tmp_path / 'ca.key'}"]


@pytest.fixture
def state(tmp_path: Path, authority: Authority) -> str:
    pair = {"CertRaw": authority.pair.certificate, "KeyRaw": authority.pair.key}
    encoded = {name: base64.b64encode(value).decode() for name, value in pair.items()}
    (tmp_path / "state.json").write_text(json.dumps({"*tls.RootCA": encoded}))
    return f"--from-install-state={tmp_path / 'state.json'}"


def options(*arguments: str) -> dict[str, Any]:
    return options_of(certificates_command, arguments)


def issuer(pem: bytes) -> str:
    return x509.load_pem_x509_certificate(pem).issuer.rfc4514_string()


def fault_of(arguments: list[str], spec: TunnelSpec = SPEC) -> Fault:
    with pytest.raises(Fault) as fault:
        certificates_from(options(*arguments), spec, NOW)
    return fault.value


def test_without_a_source_a_new_authority_signs() -> None:
    assert not wants_certificates(options())
    made = certificates_from(options(), SPEC, NOW)
    assert "konnectivity-signer" in issuer(made.server.certificate)
    x509.load_pem_x509_certificate(made.agent.certificate).verify_directly_issued_by(
        x509.load_pem_x509_certificate(made.authority)
    )


def test_an_existing_ca_signs_for_the_address(ca_files: list[str], authority: Authority) -> None:
    assert wants_certificates(options(*ca_files))
    made = certificates_from(options(*ca_files), SPEC, NOW)
    assert made.authority == authority.certificate_pem
    server = x509.load_pem_x509_certificate(made.server.certificate)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ADDRESS]
    assert server.not_valid_after_utc == NOW + timedelta(hours=5)
    assert issuer(made.agent.certificate) == "CN=root-ca"


def test_the_root_authority_of_an_installation_signs(state: str, authority: Authority) -> None:
    made = certificates_from(options(state), SPEC, NOW)
    assert made.authority == authority.certificate_pem
    assert issuer(made.server.certificate) == "CN=root-ca"
    assert authority.pair.key not in (made.server.key, made.agent.key)


def test_a_directory_of_pki_init_is_taken_as_it_is(tmp_path: Path, umbilical: Run) -> None:
    umbilical("pki", "init", "--dir", tmp_path / "pki", "--address", ADDRESS)
    taken = certificates_from(options(f"--pki={tmp_path / 'pki'}"), SPEC, NOW)
    assert taken.server.key == (tmp_path / "pki" / "server.key").read_bytes()
    other = for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address("10.0.0.6"))
    fault = fault_of([f"--pki={tmp_path / 'pki'}"], other)
    assert fault.code == "UMB117"
    assert "10.0.0.6" in fault.what


def test_two_sources_and_no_address_are_refused(ca_files: list[str], state: str) -> None:
    with pytest.raises(click.UsageError, match="give only one of"):
        wants_certificates(options(*ca_files, state))
    fault = fault_of(ca_files, for_shape(Shape.OPENSHIFT))
    assert fault.code == "UMB117"
    assert "--node-ip" in fault.remedy
