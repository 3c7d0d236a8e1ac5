"""Certificates of a hosted control plane for tests, created once, with small keys and a fixed time."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from umbilical.hosted.pki.certificate_set import (
    CertificateSettings,
    HostedSet,
    HostedSetRenewal,
    ListenerNames,
    renew,
)
from umbilical.hosted.pki.table import Signers
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

NOW: Final = datetime.now(UTC).replace(microsecond=0)
"""Created now, for programs that validate certificates with their own clock."""
NAMES: Final = ListenerNames(
    frontend=("localhost", "konnectivity-server-local", "127.0.0.1"),
    agent_listener=("konnectivity-server", "konnectivity.guest.example"),
)


def terms(**changes: Any) -> CertificateSettings:
    return CertificateSettings(**({"key_type": KeyType.ECDSA_P256} | changes))


def renewed(
    existing: HostedSet | None,
    names: ListenerNames = NAMES,
    after: timedelta = timedelta(),
    wanted: CertificateSettings | None = None,
    **how: bool,
) -> HostedSetRenewal:
    return renew(existing, names, wanted or terms(), NOW + after, Authority, **how)


@cache
def hosted_set(layout: Signers = Signers.SEPARATE) -> HostedSet:
    return renewed(None, wanted=terms(signers=layout)).set
