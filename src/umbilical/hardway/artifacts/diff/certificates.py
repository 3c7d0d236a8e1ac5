"""Certificates compared by what they say; of keys only that they differ."""

from collections.abc import Callable, Iterator
from typing import Final

from umbilical.hardway.artifacts.diff.part import Change, Part, change_of, shortened, values
from umbilical.pki.certificate import Certificate, distinguished_name, read_certificates
from umbilical.pki.pem import BundleError

_FIELDS: Final[dict[str, Callable[[Certificate], str]]] = {
    "subject": lambda one: distinguished_name(one.subject),
    "issuer": lambda one: distinguished_name(one.issuer),
    "may sign": lambda one: "yes" if one.is_authority else "no",
    "not before": lambda one: f"{one.not_before:%Y-%m-%dT%H:%M:%SZ}",
    "not after": lambda one: f"{one.not_after:%Y-%m-%dT%H:%M:%SZ}",
    "key": lambda one: f"{one.key.title} {one.key.identifier.hex()[:12]}",
    "signer's key": lambda one: (one.authority_identifier or b"").hex()[:12],
    "signed with": lambda one: one.signature_hash,
    "serial": lambda one: f"{one.serial:x}",
}
_LISTS: Final[dict[str, Callable[[Certificate], tuple[str, ...]]]] = {
    "names": lambda one: one.names,
    "usages": lambda one: one.usages,
}
"""Told by what comes and goes: a dozen names beside a dozen others hide the one that differs."""


def compare_certificates(old: bytes | None, new: bytes | None) -> tuple[Part, ...] | None:
    """Compare bundles certificate by certificate; None where a side holds none that can be read."""
    try:
        before, after = _read(old), _read(new)
    except BundleError:
        return None
    if len(before) == len(after) == 1:
        return tuple(_fields(before[0], after[0]))
    return tuple(_bundle(before, after))


def described(pem: bytes) -> str:
    """Say in a few words what a certificate is, or the first of a bundle."""
    found = read_certificates(pem)
    more = f" and {len(found) - 1} more" if found[1:] else ""
    until = f"until {found[0].not_after:%Y-%m-%dT%H:%MZ}"
    return shortened(f"{distinguished_name(found[0].subject)}, {until}, key {_FIELDS['key'](found[0])}{more}")


def _read(pem: bytes | None) -> list[Certificate]:
    return [] if pem is None else read_certificates(pem)


def _fields(old: Certificate, new: Certificate) -> Iterator[Part]:
    for name, entries in _LISTS.items():
        gone, come = (sorted(set(entries(a)) - set(entries(b))) for a, b in ((old, new), (new, old)))
        if gone or come:
            lines = (*(f"-{shortened(one)}" for one in gone), *(f"+{shortened(one)}" for one in come))
            yield Part(name, Change.CHANGED, lines=lines)
    for name, show in _FIELDS.items():
        before, after = show(old), show(new)
        if before != after:
            yield values(name, shortened(before), shortened(after))


def _bundle(before: list[Certificate], after: list[Certificate]) -> Iterator[Part]:
    """Members of a bundle are told apart by their subjects, and if there are several of one by their order."""
    old, new = _named(before), _named(after)
    for name in old | new:
        one, other = old.get(name), new.get(name)
        if one is not None and other is not None:
            parts = tuple(_fields(one, other))
            if parts:
                yield Part(f"certificate {name}", Change.CHANGED, parts=parts)
        else:
            yield Part(f"certificate {name}", change_of(one, other))


def _named(certificates: list[Certificate]) -> dict[str, Certificate]:
    named: dict[str, Certificate] = {}
    for one in certificates:
        name = shortened(distinguished_name(one.subject))
        named[name if name not in named else f"{name} ({len(named) + 1})"] = one
    return named
