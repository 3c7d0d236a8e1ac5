"""OpenSSL on every leaf: with what will check it, for what it is used, at the time of the judgement."""

from collections import defaultdict
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.judges.bench import Bench
from umbilical.pki.profiles import Usage

PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def certificate_faults(bench: Bench) -> list[str]:
    return [
        fault
        for (trusted, purpose), leaves in _meetings(bench).items()
        for fault in _ask(bench, trusted, purpose, leaves)
    ]


def _meetings(bench: Bench) -> dict[tuple[str, str], list[str]]:
    """Return who is checked with what, and as what: OpenSSL takes many of one kind at once."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in cluster_rows(bench.facts.cluster):
        for usage in row.usages:
            for trusted in dict.fromkeys((*map(anchor, row.verified_by), layout.certificate(row.signer))):
                found[trusted, PURPOSES[usage]].append(layout.certificate(row.id))
    return found


def _ask(bench: Bench, trusted: str, purpose: str, leaves: list[str]) -> list[str]:
    missing = [path for path in (trusted, *leaves) if path not in bench.facts.assets]
    if missing:
        return [f"{path} is missing" for path in missing]
    now = int(bench.facts.now.timestamp())
    # Without -no-CApath the machine's own authorities would be believed too.
    command = ["verify", "-x509_strict", "-attime", str(now), "-purpose", purpose, "-no-CApath"]
    said = bench.run("openssl", *command, "-CAfile", bench.file(trusted), *map(bench.file, leaves))
    if said.status == 0:
        return []
    told = [line for line in said.lines if not line.endswith(": OK")]
    return [f"{trusted} ({purpose}): " + " | ".join(told).replace(f"{bench.folder}/", "")]
