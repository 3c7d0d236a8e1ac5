"""All validators in order. Those for HAProxy, OpenSSL, ignition-validate, kubectl, bash and ShellCheck are here.

The one for etcd has its own module.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from umbilical.checks.check import Check, Finding, run_checks
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.validators.etcd import etcd_faults
from umbilical.hardway.validators.scratch import Lookup, ProgramResult, ScratchCopy, on_path, open_scratch, validator
from umbilical.host.commands import syntax_complaint
from umbilical.host.files import write_file
from umbilical.pki.profiles import Usage


def balancer_faults(scratch: ScratchCopy) -> list[str]:
    return [fault for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL) for fault in _haproxy_faults(scratch, path)]


def _haproxy_faults(scratch: ScratchCopy, path: str) -> list[str]:
    place = scratch.file(path)
    # The copies in /etc/haproxy may be missing or old, so the files beside the configuration are used.
    text = re.sub(r"(?<=ca-file )\S+", lambda match: PurePosixPath(match[0]).name, scratch.facts.text(path))
    write_file(place, text.encode(), overwrite=True)
    result = scratch.run("haproxy", "-c", "-C", place.parent, "-f", place.name)
    lines = result.stderr.decode(errors="replace").splitlines()
    if result.status != 0 and not lines:
        lines = [f"haproxy -c ended with status {result.status}"]
    return [f"{path}: {line.strip()}" for line in lines]


PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def certificate_faults(scratch: ScratchCopy) -> list[str]:
    return [
        fault
        for (trusted, purpose), leaves in _leaves_by_trust(scratch).items()
        for fault in _verify(scratch, trusted, purpose, leaves)
    ]


def _leaves_by_trust(scratch: ScratchCopy) -> dict[tuple[str, str], list[str]]:
    """Return (CA file, purpose) -> leaf certificates: OpenSSL verifies many in one call."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in cluster_rows(scratch.facts.cluster):
        for usage in row.usages:
            for trusted in dict.fromkeys((*map(anchor, row.verified_by), layout.certificate(row.signer))):
                found[trusted, PURPOSES[usage]].append(layout.certificate(row.id))
    return found


def _verify(scratch: ScratchCopy, trusted: str, purpose: str, leaves: list[str]) -> list[str]:
    missing = [path for path in (trusted, *leaves) if path not in scratch.facts.assets]
    if missing:
        return [f"{path} is missing" for path in missing]
    now = int(scratch.facts.now.timestamp())
    # Without -no-CApath OpenSSL would also trust the CAs of this machine.
    command = ["verify", "-x509_strict", "-attime", str(now), "-purpose", purpose, "-no-CApath"]
    result = scratch.run("openssl", *command, "-CAfile", scratch.file(trusted), *map(scratch.file, leaves))
    if result.status == 0:
        return []
    lines = [line for line in result.lines if not line.endswith(": OK")]
    return [f"{trusted} ({purpose}): " + " | ".join(lines).replace(f"{scratch.folder}/", "")]


IGNITION_VALIDATE: Final = "ignition-validate"


def ignition_faults(scratch: ScratchCopy) -> list[str]:
    return [fault for node in scratch.facts.cluster.nodes for fault in _config_faults(scratch, node)]


def _config_faults(scratch: ScratchCopy, node: ClusterNode) -> list[str]:
    path = layout.ignition(node)
    if path not in scratch.facts.assets:
        return [f"{path} is missing"]
    result = scratch.run(IGNITION_VALIDATE, scratch.file(path))
    return [] if result.status == 0 else [f"{path}: {' | '.join(result.lines) or f'exit status {result.status}'}"]


FOLDERS: Final = (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS)
# kubectl prints one error as a line, several as a list on one line.
_REFUSAL: Final = re.compile(r'unable to decode "([^"]+)": (.*?)(?=, unable to decode "|\]?$)', re.MULTILINE)
_UNKNOWN_KIND: Final = "no kind "


def object_faults(scratch: ScratchCopy) -> list[str]:
    folders = [scratch.file(name) for name in FOLDERS if scratch.file(name).is_dir()]
    if not folders:
        return ["there are no manifests and no static pods"]
    return [*_undecodable(scratch, folders), *_lost_fields(scratch)]


def _undecodable(scratch: ScratchCopy, folders: Sequence[Path]) -> Iterator[str]:
    where = [word for folder in folders for word in ("-f", folder)]
    result = _kubectl(scratch, "set", "selector", "--local", "-R", *where, "umbilical=dev", "-o", "name")
    for path, complaint in _REFUSAL.findall("\n".join(result.lines)):
        # JSON files are not Kubernetes objects.
        if path.endswith(".yaml") and not complaint.startswith(_UNKNOWN_KIND):
            yield f"{path}: {complaint}".replace(f"{scratch.folder}/", "")


def _lost_fields(scratch: ScratchCopy) -> Iterator[str]:
    """Find misspelt fields: kubectl drops them without an error."""
    for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in scratch.facts.below(folder):
            # `set` prints only changed objects, so it adds a variable; an added field does not matter here.
            result = _kubectl(
                scratch, "set", "env", "--local", "-f", scratch.file(asset.path), "UMBILICAL=1", "-o", "json"
            )
            if result.status == 0 and result.stdout:
                written, read = yaml.safe_load(asset.content), json.loads(result.stdout)
                yield from (f"{asset.path}: kubectl dropped the unknown field {name}" for name in lost(written, read))


def lost(written: Any, read: Any, path: str = "") -> Iterator[str]:
    """List the fields of `written` that `read` lacks; empty values do not count."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read and value not in (None, "", False, 0, [], {}):
                yield f"{path}.{name}".lstrip(".")
            elif name in read:
                yield from lost(value, read[name], f"{path}.{name}")
    elif isinstance(written, list) and isinstance(read, list):
        for index, (one, other) in enumerate(zip(written, read, strict=False)):
            yield from lost(one, other, f"{path}[{index}]")


def _kubectl(scratch: ScratchCopy, *words: str | Path) -> ProgramResult:
    # Without the user's kubeconfig kubectl cannot contact a cluster.
    environment = {"KUBECONFIG": "/dev/null", "HOME": str(scratch.folder), "PATH": "/usr/bin:/bin"}
    return scratch.run("kubectl", *words, environment=environment)


_SHEBANGS: Final = (b"#!/bin/bash", b"#!/usr/bin/bash", b"#!/usr/bin/env bash", b"#!/bin/sh")


def syntax_faults(scratch: ScratchCopy) -> list[str]:
    found = ((name, syntax_complaint(script)) for name, script in scripts(scratch))
    return [f"{name}: {complaint}" for name, complaint in found if complaint is not None]


def style_faults(scratch: ScratchCopy) -> list[str]:
    return [fault for name, script in scripts(scratch) for fault in _shellcheck(scratch, name, script)]


def scripts(scratch: ScratchCopy) -> Iterator[tuple[str, bytes]]:
    """Yield every script once: nodes of the same role have the same scripts."""
    seen: set[bytes] = set()
    for name, content in _candidates(scratch):
        if content.startswith(_SHEBANGS) and content not in seen:
            seen.add(content)
            yield name, content


def _candidates(scratch: ScratchCopy) -> Iterator[tuple[str, bytes]]:
    for path in sorted(scratch.facts.assets):
        yield path, scratch.facts.assets[path].content
    for node in scratch.facts.cluster.nodes:
        try:
            files = scratch.facts.ignition(node).files
        except Unreadable:
            continue
        for file in files:
            try:
                yield f"{node.id}:{file.path}", file.content()
            except IgnitionError:
                continue


def _shellcheck(scratch: ScratchCopy, name: str, script: bytes) -> list[str]:
    result = scratch.run("shellcheck", "--shell=bash", "--severity=warning", "--format=gcc", "-", stdin=script)
    return [f"{name}{line.removeprefix('-')}" for line in result.lines]


GROUP: Final = "EXT"
HEADING: Final = "Results of other programs"
_RENDER: Final = "umbilical stage plan shows how the file differs from the rendered one"

VALIDATORS: Final[tuple[Check[ScratchCopy], ...]] = (
    validator(
        "EXT-01",
        "openssl verifies every certificate with the CA file that its clients or servers use",
        "Go accepts chains that OpenSSL, curl and Python reject; a chain that OpenSSL accepts works everywhere.",
        "umbilical stage rotate NAME",
        certificate_faults,
        "openssl",
    ),
    validator(
        "EXT-02",
        "haproxy accepts both configurations without a warning",
        "HAProxy warns about lines that have no effect or another effect than intended.",
        _RENDER,
        balancer_faults,
        "haproxy",
    ),
    validator(
        "EXT-03",
        "bash can parse every script",
        "A script with a syntax error fails, and its systemd unit with it.",
        _RENDER,
        syntax_faults,
        "bash",
    ),
    validator(
        "EXT-04",
        "shellcheck reports no warnings for the scripts",
        "ShellCheck warns about code that works on one machine and fails on another.",
        _RENDER,
        style_faults,
        "shellcheck",
        is_advice=True,
    ),
    validator(
        "EXT-05",
        "ignition-validate accepts the config of every node",
        "A node with an invalid config stops in the initramfs, in an emergency shell without network.",
        _RENDER,
        ignition_faults,
        IGNITION_VALIDATE,
    ),
    validator(
        "EXT-06",
        "a real etcd runs with the certificates, and accepts its own as a client",
        "etcd dials itself with its serving certificate; without clientAuth in it the member is reported unhealthy.",
        "umbilical stage rotate etcd-serving-bootstrap",
        etcd_faults,
        "etcd",
        "etcdctl",
    ),
    validator(
        "EXT-07",
        "kubectl decodes every object",
        "The API rejects a field of the wrong type, and ignores a misspelt one without an error.",
        _RENDER,
        object_faults,
        "kubectl",
    ),
)


def run_validators(
    facts: LintFacts, lookup: Lookup = on_path, validators: tuple[Check[ScratchCopy], ...] = VALIDATORS
) -> list[Finding]:
    if not validators:
        return []
    with open_scratch(facts, lookup) as scratch:
        return run_checks(validators, scratch)
