"""`umbilical pki secrets`: create and renew a tunnel's certificates as Secrets. A Job of the Helm chart runs it."""

import asyncio
import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.findings import apply_options
from umbilical.cli.options import FILE
from umbilical.cli.pki.options import address_option, backend_option, chosen_backend, key_type_option, lifetime
from umbilical.fault import PkiError
from umbilical.manifests.objects import Object, secret
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, usable_addresses
from umbilical.pki.tunnel_renewal import TunnelPairs, TunnelRenewal, renew_tunnel
from umbilical.pki.tunnel_set import TunnelLeaf, TunnelRole

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
# The type that cert-manager writes too: Kubernetes does not let it change, and both may write the same Secret.
_TYPE: Final = "kubernetes.io/tls"
_LABELS: Final = {"app.kubernetes.io/managed-by": "umbilical"}
_YEAR: Final = "8760h"


_SECRETS: Final = {
    "ca": "Secret of the CA and its key.",
    "server": "Secret of the server's certificate.",
    "agent": "Secret of the agents' certificate.",
    "client": "Secret of the clients' certificate.",
}
_NAMES: Final = [
    click.option(f"--{name}-secret", metavar="NAME", default=f"konnectivity-{name}", show_default=True, help=what)
    for name, what in _SECRETS.items()
]


@click.command()
@click.option("-n", "--namespace", metavar="NAME", required=True, help="Namespace of the Secrets.")
@click.option("--kubeconfig", type=FILE, help="Kubeconfig of the cluster; without it, the pod's service account.")
@apply_options(_NAMES)
@address_option
@click.option(
    "--ttl", type=lifetime, metavar="DURATION", default=_YEAR, show_default=True, help="Validity of new certificates."
)
@key_type_option
@backend_option
def secrets(**options: Any) -> int:
    """Create and renew a tunnel's certificates as Secrets.

    Issues what is missing, what has other names, another CA or validity, and what has less than a third of its validity
    left; everything else stays. Each Secret has tls.crt, tls.key and ca.crt. The CA is created once, for ten years.
    """
    if not options["addresses"]:
        raise click.UsageError("pass --address for every address that agents and clients dial")
    asyncio.run(_renew(options))
    return 0


async def _renew(options: dict[str, Any]) -> None:
    from umbilical.cluster.client import make_client

    names = {role: str(options[f"{role.value}_secret"]) for role in TunnelRole}
    kubeconfig: Path | None = options["kubeconfig"]
    async with make_client(kubeconfig) as client:
        authority = await _read(client, options["namespace"], options["ca_secret"])
        found = {role: await _read(client, options["namespace"], name) for role, name in names.items()}
        renewal = _renewed(options, authority, found)
        await _write(client, options, names, renewal, found)


async def _read(client: "ApiClient", namespace: str, name: str) -> dict[str, bytes]:
    """Return the content of a Secret; empty if it does not exist."""
    from umbilical.cluster import objects

    content = await objects.get(client, objects.SECRET, name, namespace)
    values = content.get("data") if content is not None else None
    return {key: base64.b64decode(value) for key, value in values.items()} if isinstance(values, dict) else {}


def _renewed(
    options: dict[str, Any], authority: Mapping[str, bytes], found: Mapping[TunnelRole, Mapping[str, bytes]]
) -> TunnelRenewal:
    if authority and not _has_pair(authority):
        missing = ", ".join(key for key in (CERTIFICATE, KEY) if key not in authority)
        raise _unusable(options["namespace"], options["ca_secret"], f"it lacks {missing}")
    pairs = {role: _pair(content) for role, content in found.items() if _has_pair(content)}
    existing = TunnelPairs(_pair(authority) if authority else None, pairs)
    key_type, addresses = KeyType(options["key_type"]), usable_addresses(options["addresses"])
    leaves = [TunnelLeaf(role, key_type, addresses if role is TunnelRole.SERVER else ()) for role in TunnelRole]
    ttl: timedelta = options["ttl"]
    with chosen_backend(options["backend"]) as backend:
        return renew_tunnel(existing, leaves, ttl, key_type, datetime.now(UTC), backend)


async def _write(
    client: "ApiClient",
    options: dict[str, Any],
    names: Mapping[TunnelRole, str],
    renewal: TunnelRenewal,
    found: Mapping[TunnelRole, Mapping[str, bytes]],
) -> None:
    from umbilical.cluster import objects
    from umbilical.cluster.apply import Applier, read_document

    namespace, bundle = options["namespace"], renewal.authority.bundle
    if renewal.has_new_authority:
        content = _object(options["ca_secret"], namespace, renewal.authority.signer.pair, bundle)
        # Not by apply: of two runs at the same time only one may make the CA.
        await client.request("POST", objects.SECRET.path(namespace), body=content)
        click.echo(f"{options['ca_secret']}: created", err=True)
    applier = Applier(client)
    for role, name in names.items():
        pair = renewal.issued.get(role)
        reason = renewal.reasons.get(role) or ("" if found[role].get(AUTHORITY) == bundle else "the CA changed")
        if reason:
            document = read_document(_object(name, namespace, pair or _pair(found[role]), bundle))
            assert document is not None
            await applier.apply(document)
        click.echo(f"{name}: {f'written: {reason}' if reason else 'unchanged'}", err=True)


def _object(name: str, namespace: str, pair: KeyPair, bundle: bytes) -> Object:
    head = {"name": name, "namespace": namespace, "labels": dict(_LABELS)}
    return secret(head, {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITY: bundle}, _TYPE)


def _has_pair(content: Mapping[str, bytes]) -> bool:
    return CERTIFICATE in content and KEY in content


def _pair(content: Mapping[str, bytes]) -> KeyPair:
    return KeyPair(content[CERTIFICATE], content[KEY])


def _unusable(namespace: str, name: str, why: str) -> PkiError:
    remedy = f"restore it, or let everything be issued anew: kubectl -n {namespace} delete secret {name}"
    return PkiError("UMB158", f"Secret {namespace}/{name} holds no usable CA", why, remedy)
