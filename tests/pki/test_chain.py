"""Our verdict on a chain against that of the real `openssl verify`, over good ones and each kind of bad one."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from tests.support.hardway_pki import Forgery
from tests.support.tunnel_directories import openssl_verifies

from umbilical.pki.certificate import read_certificates
from umbilical.pki.chain import authority_trouble, chain_trouble, identifier_trouble
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Usage

NOW: Final = datetime.now(UTC).replace(microsecond=0)
DAY: Final = timedelta(days=1)
PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def authority(name: str, signer: KeyPair | None = None, path_length: int | None = None) -> KeyPair:
    return Forgery(name, is_authority=True, path_length=path_length).signed_by(signer, NOW)


def leaf(signer: KeyPair, **odd: Any) -> KeyPair:
    return replace(Forgery("leaf", usages=(Usage.SERVER,), dns_names=("a.example",)), **odd).signed_by(signer, NOW)


ROOT: Final = authority("root")
TWIN: Final = authority("root")
BETWEEN: Final = authority("between", ROOT)
SHORT_ROOT: Final = authority("short", path_length=0)
BELOW_SHORT: Final = authority("below", SHORT_ROOT)
UNIDENTIFIED: Final = Forgery("root", is_authority=True, without=(x509.SubjectKeyIdentifier,)).signed_by(None, NOW)


@dataclass(frozen=True)
class Case:
    leaf: KeyPair
    trusted: tuple[KeyPair, ...]
    why: str = ""
    """Empty: it verifies."""
    purpose: Usage = Usage.SERVER


CASES: Final = {
    "one link": Case(leaf(ROOT), (ROOT,)),
    "two links": Case(leaf(BETWEEN), (BETWEEN, ROOT)),
    "two links in the other order": Case(leaf(BETWEEN), (ROOT, BETWEEN)),
    "one among others": Case(leaf(ROOT), (TWIN, SHORT_ROOT, ROOT)),
    "a short path that is long enough": Case(leaf(SHORT_ROOT), (SHORT_ROOT,)),
    "an intermediate alone": Case(leaf(BETWEEN), (BETWEEN,), "unable to get issuer certificate: root"),
    "a stranger": Case(leaf(ROOT), (BETWEEN, SHORT_ROOT), "unable to get issuer certificate: root"),
    "a twin by name": Case(leaf(ROOT), (TWIN,), "unable to get issuer certificate: root"),
    "another purpose": Case(leaf(ROOT), (ROOT,), "it is not for clientAuth", Usage.CLIENT),
    "a path that is too long": Case(leaf(BELOW_SHORT), (BELOW_SHORT, SHORT_ROOT), "path length constraint exceeded"),
    "a leaf that signed": Case(leaf(leaf(ROOT)), (leaf(ROOT),), "unable to get issuer certificate"),
    "an end that is past": Case(
        Forgery("leaf", usages=(Usage.SERVER,)).signed_by(ROOT, NOW - 3 * DAY), (ROOT,), "leaf: it expired"
    ),
    "a beginning that is to come": Case(
        Forgery("leaf", usages=(Usage.SERVER,)).signed_by(ROOT, NOW + DAY), (ROOT,), "leaf: it is not valid before"
    ),
    "no identifier of its own": Case(leaf(ROOT, without=(x509.SubjectKeyIdentifier,)), (ROOT,)),
    "an authority without an identifier": Case(
        leaf(UNIDENTIFIED, without=(x509.AuthorityKeyIdentifier,)), (UNIDENTIFIED,), "it has no"
    ),
    "no identifier of its signer": Case(
        leaf(ROOT, without=(x509.AuthorityKeyIdentifier,)), (ROOT,), "it has no authorityKeyIdentifier"
    ),
}


@pytest.mark.real("openssl")
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_chain_is_judged_as_openssl_judges_it(case: Case, tmp_path: Path) -> None:
    bundle, certificate = tmp_path / "bundle.crt", tmp_path / "leaf.crt"
    bundle.write_bytes(b"".join(one.certificate for one in case.trusted))
    certificate.write_bytes(case.leaf.certificate)
    trusted = read_certificates(bundle.read_bytes())
    found = chain_trouble(read_certificates(case.leaf.certificate)[0], trusted, case.purpose, NOW)
    assert case.why in found
    assert bool(found) == bool(case.why)
    assert openssl_verifies(bundle, certificate, "-purpose", PURPOSES[case.purpose]) == (not found)


def test_a_leaf_that_signed_others_is_no_authority() -> None:
    signing = Forgery("leaf").signed_by(ROOT, NOW)
    signed = Forgery("more", usages=(Usage.CLIENT,)).signed_by(signing, NOW)
    trusted = [read_certificates(one.certificate)[0] for one in (signing, ROOT)]
    found = chain_trouble(read_certificates(signed.certificate)[0], trusted, Usage.CLIENT, NOW)
    assert found == "leaf: it may not sign certificates"


def test_a_root_is_trusted_when_it_is_in_the_bundle_and_else_not() -> None:
    root, twin = (read_certificates(one.certificate)[0] for one in (ROOT, TWIN))
    assert chain_trouble(root, [twin, root], Usage.SERVER, NOW) == ""
    assert "is not in the bundle" in chain_trouble(root, [twin], Usage.SERVER, NOW)


def test_a_chain_that_is_longer_than_anybodys_is_not_followed() -> None:
    links = [ROOT]
    for number in range(12):
        links.append(authority(f"link-{number}", links[-1]))
    trusted = [read_certificates(one.certificate)[0] for one in links]
    end = read_certificates(leaf(links[-1]).certificate)[0]
    assert "unable to get issuer certificate" in chain_trouble(end, trusted, Usage.SERVER, NOW)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"is_authority": False}, "it may not sign certificates"),
        ({"softened": (x509.BasicConstraints,)}, "its basicConstraints are not critical"),
        ({"without": (x509.KeyUsage,)}, "its keyUsage lacks keyCertSign"),
        ({}, ""),
    ],
)
def test_what_an_authority_lacks_is_told(odd: dict[str, Any], why: str) -> None:
    forgery = replace(Forgery("x", is_authority=True), **odd)
    assert authority_trouble(read_certificates(forgery.signed_by(None, NOW).certificate)[0]) == why


def test_a_missing_identifier_is_told_and_a_root_needs_none_of_a_signer() -> None:
    assert identifier_trouble(read_certificates(ROOT.certificate)[0]) == ""
    assert identifier_trouble(read_certificates(UNIDENTIFIED.certificate)[0]) == "it has no subjectKeyIdentifier"
    nameless = leaf(ROOT, without=(x509.AuthorityKeyIdentifier,))
    assert identifier_trouble(read_certificates(nameless.certificate)[0]) == "it has no authorityKeyIdentifier"
