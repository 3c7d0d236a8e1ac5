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

from umbilical.checks.check import Check, Finding, run_checks
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.judges.bench import Bench, Lookup, Said, judge_by, on_path, open_bench
from umbilical.hardway.judges.etcd import etcd_faults
from umbilical.hardway.lint.facts import Facts, Unreadable
from umbilical.host.commands import syntax_complaint
from umbilical.host.files import write_file
from umbilical.pki.profiles import Usage


def balancer_faults(bench: Bench) -> list[str]:
    return [fault for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL) for fault in _haproxy_faults(bench, path)]


def _haproxy_faults(bench: Bench, path: str) -> list[str]:
    place = bench.file(path)
    # The host's own copies may not be there yet, or be old.
    text = re.sub(r"(?<=ca-file )\S+", lambda match: PurePosixPath(match[0]).name, bench.facts.text(path))
    write_file(place, text.encode(), overwrite=True)
    said = bench.run("haproxy", "-c", "-C", place.parent, "-f", place.name)
    told = said.stderr.decode(errors="replace").splitlines()
    if said.status != 0 and not told:
        told = [f"haproxy -c ended with {said.status}"]
    return [f"{path}: {line.strip()}" for line in told]


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


IGNITION_VALIDATE: Final = "ignition-validate"


def ignition_faults(bench: Bench) -> list[str]:
    return [fault for node in bench.facts.cluster.nodes for fault in _config_faults(bench, node)]


def _config_faults(bench: Bench, node: Node) -> list[str]:
    path = layout.ignition(node)
    if path not in bench.facts.assets:
        return [f"{path} is missing"]
    said = bench.run(IGNITION_VALIDATE, bench.file(path))
    return [] if said.status == 0 else [f"{path}: {' | '.join(said.lines) or f'it ended with {said.status}'}"]


FOLDERS: Final = (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS)
# One refusal is a line; several are a list on one line.
_REFUSAL: Final = re.compile(r'unable to decode "([^"]+)": (.*?)(?=, unable to decode "|\]?$)', re.MULTILINE)
_UNKNOWN_KIND: Final = "no kind "


def object_faults(bench: Bench) -> list[str]:
    folders = [bench.file(name) for name in FOLDERS if bench.file(name).is_dir()]
    if not folders:
        return ["there is nothing to decode"]
    return [*_undecodable(bench, folders), *_lost_fields(bench)]


def _undecodable(bench: Bench, folders: Sequence[Path]) -> Iterator[str]:
    where = [word for folder in folders for word in ("-f", folder)]
    said = _kubectl(bench, "set", "selector", "--local", "-R", *where, "umbilical=dev", "-o", "name")
    for path, complaint in _REFUSAL.findall("\n".join(said.lines)):
        # Lists of steps are JSON and no objects.
        if path.endswith(".yaml") and not complaint.startswith(_UNKNOWN_KIND):
            yield f"{path}: {complaint}".replace(f"{bench.folder}/", "")


def _lost_fields(bench: Bench) -> Iterator[str]:
    """A misspelt field is decoded without a word: it is simply gone from what kubectl has read."""
    for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in bench.facts.below(folder):
            # Only what was changed is printed; what is added does not matter to who looks for what is lost.
            said = _kubectl(bench, "set", "env", "--local", "-f", bench.file(asset.path), "UMBILICAL=1", "-o", "json")
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


def _kubectl(bench: Bench, *words: str | Path) -> Said:
    # No kubeconfig of the user's: nothing may be asked of any cluster.
    environment = {"KUBECONFIG": "/dev/null", "HOME": str(bench.folder), "PATH": "/usr/bin:/bin"}
    return bench.run("kubectl", *words, environment=environment)


_SHEBANGS: Final = (b"#!/bin/bash", b"#!/usr/bin/bash", b"#!/usr/bin/env bash", b"#!/bin/sh")


def syntax_faults(bench: Bench) -> list[str]:
    found = ((name, syntax_complaint(script)) for name, script in scripts(bench))
    return [f"{name}: {complaint}" for name, complaint in found if complaint is not None]


def style_faults(bench: Bench) -> list[str]:
    return [fault for name, script in scripts(bench) for fault in _shellcheck(bench, name, script)]


def scripts(bench: Bench) -> Iterator[tuple[str, bytes]]:
    """Yield every script once: nodes of one role share theirs."""
    seen: set[bytes] = set()
    for name, content in _candidates(bench):
        if content.startswith(_SHEBANGS) and content not in seen:
            seen.add(content)
            yield name, content


def _candidates(bench: Bench) -> Iterator[tuple[str, bytes]]:
    for path in sorted(bench.facts.assets):
        yield path, bench.facts.assets[path].content
    for node in bench.facts.cluster.nodes:
        try:
            files = bench.facts.ignition(node).files
        except Unreadable:
            continue
        for file in files:
            try:
                yield f"{node.id}:{file.path}", file.content()
            except IgnitionError:
                continue


def _shellcheck(bench: Bench, name: str, script: bytes) -> list[str]:
    said = bench.run("shellcheck", "--shell=bash", "--severity=warning", "--format=gcc", "-", stdin=script)
    return [f"{name}{line.removeprefix('-')}" for line in said.lines]


GROUP: Final = "EXT"
HEADING: Final = "What other programs say"
_RENDER: Final = "umbilical stage plan shows what differs from what is rendered"

JUDGES: Final[tuple[Check[Bench], ...]] = (
    judge_by(
        "EXT-01",
        "openssl verifies every certificate with what will check it",
        "Go accepts chains that OpenSSL, curl and Python refuse; what passes here passes everywhere.",
        "umbilical stage rotate NAME",
        certificate_faults,
        "openssl",
    ),
    judge_by(
        "EXT-02",
        "haproxy takes both configurations without a warning",
        "A warning is how HAProxy tells that a line does not do what it says.",
        _RENDER,
        balancer_faults,
        "haproxy",
    ),
    judge_by(
        "EXT-03",
        "bash can read every script",
        "A script that does not parse ends a unit before its first command.",
        _RENDER,
        syntax_faults,
        "bash",
    ),
    judge_by(
        "EXT-04",
        "shellcheck has nothing to say against the scripts",
        "What it warns of is how scripts fail on the one machine that is different.",
        _RENDER,
        style_faults,
        "shellcheck",
        is_advice=True,
    ),
    judge_by(
        "EXT-05",
        "Ignition's validator takes the config of every node",
        "A node whose config is refused stops in the initial ramdisk, with a shell that nobody can reach.",
        _RENDER,
        ignition_faults,
        IGNITION_VALIDATE,
    ),
    judge_by(
        "EXT-06",
        "a real etcd runs with the certificates, and takes its own",
        "etcd dials itself with its serving certificate; without clientAuth in it the member is called unhealthy.",
        "umbilical stage rotate etcd-serving-bootstrap",
        etcd_faults,
        "etcd",
        "etcdctl",
    ),
    judge_by(
        "EXT-07",
        "kubectl decodes every object",
        "A field of the wrong type is refused by the API, and a misspelt one is ignored without a word.",
        _RENDER,
        object_faults,
        "kubectl",
    ),
)


def ask_judges(facts: Facts, lookup: Lookup = on_path, judges: tuple[Check[Bench], ...] = JUDGES) -> list[Finding]:
    if not judges:
        return []
    with open_bench(facts, lookup) as bench:
        return run_checks(judges, bench)
