"""Bash and ShellCheck on every script: those beside the artifacts, and those that Ignition puts onto nodes."""

from collections.abc import Iterator
from typing import Final

from umbilical.fault import IgnitionError
from umbilical.hardway.judges.bench import Bench
from umbilical.hardway.lint.facts import Unreadable
from umbilical.host.commands import syntax_complaint

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
