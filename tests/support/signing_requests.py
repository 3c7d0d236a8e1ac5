"""Signing requests as kubelets make them, and as somebody else might."""

import base64
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def pem(
    common_name: str = "system:node:master-0",
    organizations: Sequence[str] = ("system:nodes",),
    dns: Sequence[str] = (),
    addresses: Sequence[str] = (),
    others: Sequence[x509.GeneralName] = (),
    key: Any = KEY,
) -> bytes:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    if common_name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    names: list[x509.GeneralName] = [*(x509.DNSName(one) for one in dns), *map(_address, addresses), *others]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _address(text: str) -> x509.IPAddress:
    return x509.IPAddress(ip_network(text) if "/" in text else ip_address(text))


def filed(name: str, content: bytes, signer: str, usages: Sequence[str]) -> dict[str, Any]:
    """A request as its sender files it."""
    spec = {"request": base64.b64encode(content).decode(), "signerName": signer, "usages": list(usages)}
    head = {"name": name}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": head, "spec": spec}


def csr(
    name: str, content: bytes, signer: str, user: str, groups: Sequence[str], usages: Sequence[str], made: str
) -> dict[str, Any]:
    """The same as the API stores it."""
    found = filed(name, content, signer, usages)
    found["metadata"]["creationTimestamp"] = made
    found["spec"] |= {"username": user, "groups": list(groups)}
    return found
