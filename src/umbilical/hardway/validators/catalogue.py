"""All judges in their order, and those that ask one program: HAProxy, OpenSSL, ignition-validate, kubectl, ShellCheck.

The trial of a real etcd has a module of its own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from umbilical.checks.check import Check, Finding, judge
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
    # The host's own copies may not be there yet, or be old.
    text = re.sub(r"(?<=ca-file )\S+", lambda match: PurePosixPath(match[0]).name, scratch.facts.text(path))
    write_file(place, text.encode(), overwrite=True)
    said = scratch.run("haproxy", "-c", "-C", place.parent, "-f", place.name)
    told = said.stderr.decode(errors="replace").splitlines()
    if said.status != 0 and not told:
        told = [f"haproxy -c ended with {said.status}"]
    return [f"{path}: {line.strip()}" for line in told]


PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def certificate_faults(scratch: ScratchCopy) -> list[str]:
    return [
        fault
        for (trusted, purpose), leaves in _meetings(scratch).items()
        for fault in _ask(scratch, trusted, purpose, leaves)
    ]


def _meetings(scratch: ScratchCopy) -> dict[tuple[str, str], list[str]]:
    """Return who is checked with what, and as what: OpenSSL takes many of one kind at once."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in cluster_rows(scratch.facts.cluster):
        for usage in row.usages:
            for trusted in dict.fromkeys((*map(anchor, row.verified_by), layout.certificate(row.signer))):
                found[trusted, PURPOSES[usage]].append(layout.certificate(row.id))
    return found


def _ask(scratch: ScratchCopy, trusted: str, purpose: str, leaves: list[str]) -> list[str]:
    missing = [path for path in (trusted, *leaves) if path not in scratch.facts.assets]
    if missing:
        return [f"{path} is missing" for path in missing]
    now = int(scratch.facts.now.timestamp())
    # Without -no-CApath the machine's own authorities would be believed too.
    command = ["verify", "-x509_strict", "-attime", str(now), "-purpose", purpose, "-no-CApath"]
    said = scratch.run("openssl", *command, "-CAfile", scratch.file(trusted), *map(scratch.file, leaves))
    if said.status == 0:
        return []
    told = [line for line in said.lines if not line.endswith(": OK")]
    return [f"{trusted} ({purpose}): " + " | ".join(told).replace(f"{scratch.folder}/", "")]


IGNITION_VALIDATE: Final = "ignition-validate"


def ignition_faults(scratch: ScratchCopy) -> list[str]:
    return [fault for node in scratch.facts.cluster.nodes for fault in _config_faults(scratch, node)]


def _config_faults(scratch: ScratchCopy, node: ClusterNode) -> list[str]:
    path = layout.ignition(node)
    if path not in scratch.facts.assets:
        return [f"{path} is missing"]
    said = scratch.run(IGNITION_VALIDATE, scratch.file(path))
    return [] if said.status == 0 else [f"{path}: {' | '.join(said.lines) or f'it ended with {said.status}'}"]


FOLDERS: Final = (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS)
# One refusal is a line; several are a list on one line.
_REFUSAL: Final = re.compile(r'unable to decode "([^"]+)": (.*?)(?=, unable to decode "|\]?$)', re.MULTILINE)
_UNKNOWN_KIND: Final = "no kind "


def object_faults(scratch: ScratchCopy) -> list[str]:
    folders = [scratch.file(name) for name in FOLDERS if scratch.file(name).is_dir()]
    if not folders:
        return ["there is nothing to decode"]
    return [*_undecodable(scratch, folders), *_lost_fields(scratch)]


def _undecodable(scratch: ScratchCopy, folders: Sequence[Path]) -> Iterator[str]:
    where = [word for folder in folders for word in ("-f", folder)]
    said = _kubectl(scratch, "set", "selector", "--local", "-R", *where, "umbilical=dev", "-o", "name")
    for path, complaint in _REFUSAL.findall("\n".join(said.lines)):
        # Lists of steps are JSON and no objects.
        if path.endswith(".yaml") and not complaint.startswith(_UNKNOWN_KIND):
            yield f"{path}: {complaint}".replace(f"{scratch.folder}/", "")


def _lost_fields(scratch: ScratchCopy) -> Iterator[str]:
    """A misspelt field is decoded without a word: it is simply gone from what kubectl has read."""
    for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in scratch.facts.below(folder):
            # Only what was changed is printed; what is added does not matter to who looks for what is lost.
            said = _kubectl(
                scratch, "set", "env", "--local", "-f", scratch.file(asset.path), "UMBILICAL=1", "-o", "json"
            )
            if said.status == 0 and said.stdout:
                written, read = yaml.safe_load(asset.content), json.loads(said.stdout)
                yield from (f"{asset.path}: kubectl knows no {name}" for name in lost(written, read))


def lost(written: Any, read: Any, path: str = "") -> Iterator[str]:
    """Name the fields that are in the first and not in the second; empty values may go."""
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
    # No kubeconfig of the user's: nothing may be asked of any cluster.
    environment = {"KUBECONFIG": "/dev/null", "HOME": str(scratch.folder), "PATH": "/usr/bin:/bin"}
    return scratch.run("kubectl", *words, environment=environment)


_SHEBANGS: Final = (b"#!/bin/bash", b"#!/usr/bin/bash", b"#!/usr/bin/env bash", b"#!/bin/sh")


def syntax_faults(scratch: ScratchCopy) -> list[str]:
    found = ((name, syntax_complaint(script)) for name, script in scripts(scratch))
    return [f"{name}: {complaint}" for name, complaint in found if complaint is not None]


def style_faults(scratch: ScratchCopy) -> list[str]:
    return [fault for name, script in scripts(scratch) for fault in _shellcheck(scratch, name, script)]


def scripts(scratch: ScratchCopy) -> Iterator[tuple[str, bytes]]:
    """Yield every script once: nodes of one role share theirs."""
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
    said = scratch.run("shellcheck", "--shell=bash", "--severity=warning", "--format=gcc", "-", stdin=script)
    return [f"{name}{line.removeprefix('-')}" for line in said.lines]


GROUP: Final = "EXT"
HEADING: Final = "What other programs say"
_RENDER: Final = "umbilical stage plan shows what differs from what is rendered"

VALIDATORS: Final[tuple[Check[ScratchCopy], ...]] = (
    validator(
        "EXT-01",
        "openssl verifies every certificate with what will check it",
        "Go accepts chains that OpenSSL, curl and Python refuse; what passes here passes everywhere.",
        "umbilical stage rotate NAME",
        certificate_faults,
        "openssl",
    ),
    validator(
        "EXT-02",
        "haproxy takes both configurations without a warning",
        "A warning is how HAProxy tells that a line does not do what it says.",
        _RENDER,
        balancer_faults,
        "haproxy",
    ),
    validator(
        "EXT-03",
        "bash can read every script",
        "A script that does not parse ends a unit before its first command.",
        _RENDER,
        syntax_faults,
        "bash",
    ),
    validator(
        "EXT-04",
        "shellcheck has nothing to say against the scripts",
        "What it warns of is how scripts fail on the one machine that is different.",
        _RENDER,
        style_faults,
        "shellcheck",
        is_advice=True,
    ),
    validator(
        "EXT-05",
        "Ignition's validator takes the config of every node",
        "A node whose config is refused stops in the initial ramdisk, with a shell that nobody can reach.",
        _RENDER,
        ignition_faults,
        IGNITION_VALIDATE,
    ),
    validator(
        "EXT-06",
        "a real etcd runs with the certificates, and takes its own",
        "etcd dials itself with its serving certificate; without clientAuth in it the member is called unhealthy.",
        "umbilical stage rotate etcd-serving-bootstrap",
        etcd_faults,
        "etcd",
        "etcdctl",
    ),
    validator(
        "EXT-07",
        "kubectl decodes every object",
        "A field of the wrong type is refused by the API, and a misspelt one is ignored without a word.",
        _RENDER,
        object_faults,
        "kubectl",
    ),
)


def run_validators(
    facts: LintFacts, lookup: Lookup = on_path, judges: tuple[Check[ScratchCopy], ...] = VALIDATORS
) -> list[Finding]:
    if not judges:
        return []
    with open_scratch(facts, lookup) as scratch:
        return judge(judges, scratch)
