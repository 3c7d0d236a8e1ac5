"""Which keys sign service accounts' tokens, and whether every kube-apiserver has their public halves."""

from collections.abc import Iterator

from umbilical.hardway.lint.facts import Facts, Unreadable
from umbilical.hardway.lint.programs import CONTROLLER_MANAGER, KUBE_APISERVER, programs
from umbilical.pki.authority import decode_own_key, public_half
from umbilical.pki.pem import BundleError, public_key_block


def token_key_faults(facts: Facts) -> Iterator[str]:
    servers = programs(facts, KUBE_APISERVER)
    bound = {server.file("service-account-signing-key-file") for server in servers}
    lasting = {one.file("service-account-private-key-file") for one in programs(facts, CONTROLLER_MANAGER)}
    signing = bound | lasting
    if {_own(facts, path) for path in bound} & {_own(facts, path) for path in lasting}:
        yield f"kube-apiserver and controller-manager sign with the same key: {', '.join(sorted(signing))}"
    for server in servers:
        known = {_public(facts, server.artifact(path)) for path in server.values("service-account-key-file")}
        for path in sorted(signing):
            if _own(facts, path) not in known:
                yield f"{server.path} has not the public half of {path}"


def _public(facts: Facts, path: str) -> bytes:
    try:
        return public_key_block(facts.content(path))
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None


def _own(facts: Facts, path: str) -> bytes:
    try:
        return public_half(decode_own_key(facts.content(path)))
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None
