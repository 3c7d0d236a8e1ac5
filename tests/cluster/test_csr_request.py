"""What a signing request asks for; what is no request, or has a weak key, is refused."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.signing_requests import PUBLIC, pem

from umbilical.cluster.csr_request import RequestError, read_request


def test_names_groups_and_key_are_read() -> None:
    request = read_request(pem(dns=["master-0"], addresses=["192.0.2.1", "2001:db8::1"]))
    assert request.common_name == "system:node:master-0"
    assert request.organizations == ("system:nodes",)
    assert request.dns_names == ("master-0",)
    assert [str(one) for one in request.ip_addresses] == ["192.0.2.1", "2001:db8::1"]
    assert request.other_names == 0
    assert request.public_key == PUBLIC


def test_names_of_other_kinds_are_counted() -> None:
    uri = x509.UniformResourceIdentifier("spiffe://example")
    mail = x509.RFC822Name("a@example.com")
    assert read_request(pem(others=[uri, mail])).other_names == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no PEM"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "cannot be read"),
        (pem() + pem(common_name="system:node:another"), "exactly one block"),
        (pem().replace(b"-----\n", b"-----\nA: b\n\n", 1), "exactly one block"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n" + pem(), "exactly one block"),
        (pem(common_name=""), "0 common names"),
        (pem(key=rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem(key=ec.generate_private_key(ec.SECP256K1())), "neither RSA nor"),
    ],
)
def test_what_nobody_should_sign_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        read_request(content)


def test_a_request_that_another_key_signed_is_refused() -> None:
    import base64

    lines = pem().split(b"\n")
    der = bytearray(base64.b64decode(b"".join(lines[1:-2])))
    der[-1] ^= 1
    broken = b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n" % base64.b64encode(der)
    with pytest.raises(RequestError, match=r"signature|read"):
        read_request(broken)


def test_a_key_of_another_kind_is_refused() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    from cryptography.hazmat.primitives.serialization import Encoding

    content = builder.sign(ed25519.Ed25519PrivateKey.generate(), None).public_bytes(Encoding.PEM)
    with pytest.raises(RequestError, match="neither RSA nor"):
        read_request(content)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(content: bytes) -> None:
    with pytest.raises(RequestError):
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\n" + content)
