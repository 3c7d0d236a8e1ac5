"""Certificates at render time: from which source, for which address."""

import base64
import ipaddress
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import pytest
from cryptography import x509
from tests.cli.native import options_of

from umbilical.assets.spec import Shape, TunnelSpec, for_shape
from umbilical.cli import main
from umbilical.cli.bootstrap_certificates import certificate_options, certificates_from, wants_certificates
from umbilical.fault import Fault
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

NOW: Final = datetime.now(UTC).replace(microsecond=0)
ADDRESS: Final = ipaddress.ip_address("10.0.0.5")
SPEC: Final = for_shape(Shape.OPENSHIFT, node_ip=ADDRESS, certificate_hours=5)


@click.command()
@certificate_options
def command(**options: Any) -> None:
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
    return options_of(command, arguments)


def issuer(pem: bytes) -> str:
    return x509.load_pem_x509_certificate(pem).issuer.rfc4514_string()


def fault_of(arguments: list[str], spec: TunnelSpec = SPEC) -> Fault:
    with pytest.raises(Fault) as fault:
        certificates_from(options(*arguments), spec, NOW)
    return fault.value


def test_no_source_is_none() -> None:
    assert not wants_certificates(options())


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


def test_without_a_source_a_new_authority_signs() -> None:
    made = certificates_from(options(), SPEC, NOW)
    assert "konnectivity-signer" in issuer(made.server.certificate)
    x509.load_pem_x509_certificate(made.agent.certificate).verify_directly_issued_by(
        x509.load_pem_x509_certificate(made.authority)
    )


def test_a_directory_of_pki_init_is_taken_as_it_is(tmp_path: Path) -> None:
    assert main.run(["pki", "init", "--dir", str(tmp_path / "pki"), "--address", str(ADDRESS)]) == 0
    taken = certificates_from(options(f"--pki={tmp_path / 'pki'}"), SPEC, NOW)
    assert taken.server.key == (tmp_path / "pki" / "server.key").read_bytes()
    other = for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address("10.0.0.6"))
    fault = fault_of([f"--pki={tmp_path / 'pki'}"], other)
    assert fault.code == "UMB117"
    assert "10.0.0.6" in fault.what


def test_an_address_that_is_found_later_can_be_in_no_certificate_now(ca_files: list[str]) -> None:
    fault = fault_of(ca_files, for_shape(Shape.OPENSHIFT))
    assert fault.code == "UMB117"
    assert "--node-ip" in fault.remedy


def test_half_a_ca_is_refused(ca_files: list[str]) -> None:
    for half in ca_files:
        with pytest.raises(Fault) as fault:
            wants_certificates(options(half))
        assert fault.value.code == "UMB003"


def test_two_sources_are_refused(ca_files: list[str], state: str) -> None:
    with pytest.raises(click.UsageError, match="exclude each other"):
        wants_certificates(options(*ca_files, state))
