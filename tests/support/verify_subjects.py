"""Bootstrap configs with a tunnel in them, and single changes to them: what a check must notice."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import yaml
from tests.support.bootkube_script import Native
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.bootstrap.names import BOOTKUBE, NATIVE, OWN, TunnelNames
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.bootstrap.verify.catalogue import CATALOGUE, verify
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.checks.check import Finding, Outcome
from umbilical.ignition.config import read_config
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.tree import yaml_bytes

NAMES: Final = ("native", "patched", "seed", "beside-native")
RULES: Final = {rule.id: rule for rule in CATALOGUE}


@dataclass(frozen=True)
class Subject:
    """A config, what its tunnel's files are called, and changes that each give a new one."""

    content: bytes
    names: TunnelNames = OWN

    def path(self, role: str) -> str:
        """A field of `Names`, `bootkube`, or a path itself."""
        return BOOTKUBE if role == "bootkube" else str(getattr(self.names, role, role))

    def text(self, role: str) -> str:
        file = read_config(self.content).file(self.path(role))
        assert file is not None
        return file.text()

    def value(self, role: str) -> Any:
        return yaml.safe_load(self.text(role))

    def with_text(self, role: str, text: str) -> "Subject":
        document = IgnitionDocument(self.content).with_content(self.path(role), text.encode())
        return replace(self, content=document.content)

    def replaced(self, role: str, old: str, new: str) -> "Subject":
        """Change the one place where `old` stands."""
        text = self.text(role)
        assert text.count(old) == 1, f"{old!r} is in {role} {text.count(old)} times"
        return self.with_text(role, text.replace(old, new))

    def edited(self, role: str, edit: Callable[[Any], None]) -> "Subject":
        """Change a manifest's value in place."""
        value = self.value(role)
        edit(value)
        return self.with_text(role, yaml_bytes(value).decode())

    def entry(self, role: str, **changes: Any) -> "Subject":
        """Change fields of a file's entry; None takes one out."""
        value = json.loads(self.content)
        (entry,) = [entry for entry in value["storage"]["files"] if entry["path"] == self.path(role)]
        entry.update(changes)
        for name in [name for name, field in changes.items() if field is None]:
            del entry[name]
        return replace(self, content=json.dumps(value, separators=(",", ":")).encode())

    def whole(self, edit: Callable[[dict[str, Any]], None]) -> "Subject":
        """Change the config's JSON."""
        value = json.loads(self.content)
        edit(value)
        return replace(self, content=json.dumps(value, separators=(",", ":")).encode())

    def without(self, role: str) -> "Subject":
        path = self.path(role)

        def drop(value: dict[str, Any]) -> None:
            value["storage"]["files"] = [file for file in value["storage"]["files"] if file["path"] != path]

        return self.whole(drop)


def pod(value: Any) -> Any:
    """The pod's spec, of a Pod or of a DaemonSet."""
    return value["spec"]["template"]["spec"] if value["kind"] == "DaemonSet" else value["spec"]


def container(value: Any) -> Any:
    return pod(value)["containers"][0]


@cache
def subject(name: str, release: str = "5.1") -> Subject:
    """Give a config that passes: the installer's own tunnel, a patch of either shape, a patch beside native-off."""
    if name == "native":
        return Subject(bootstrap_config(release, native="on"), NATIVE)
    native: Native = "off" if name == "beside-native" else "none"
    shape = Shape.SEED if name == "seed" else Shape.OPENSHIFT
    document = IgnitionDocument(bootstrap_config(release, native=native))
    return Subject(patch(document, for_shape(shape)).document.content)


def findings(content: bytes, *checks: str, **facts: Any) -> dict[str, Finding]:
    """Judge by the checks of these ids, or by the whole catalogue."""
    rules = tuple(RULES[check] for check in checks) or CATALOGUE
    judged = verify(BootstrapFacts(content, **{"bash_syntax": bash_syntax, **facts}), rules)
    return {finding.id: finding for finding in judged}


def failures(content: bytes, *checks: str, **facts: Any) -> set[str]:
    """Give those of these checks that fail."""
    return {finding.id for finding in findings(content, *checks, **facts).values() if finding.outcome is Outcome.FAILED}


def warnings(content: bytes, *checks: str, **facts: Any) -> set[str]:
    return {finding.id for finding in findings(content, *checks, **facts).values() if finding.outcome is Outcome.WARNED}


def is_caught(content: bytes) -> bool:
    """Say whether any check fails. Rules are run until one does, those of bootkube.sh after the quicker ones."""
    facts = BootstrapFacts(content, bash_syntax=bash_syntax)
    rules = sorted(CATALOGUE, key=lambda rule: rule.id.startswith("B"))
    return any(finding.outcome is Outcome.FAILED for rule in rules for finding in verify(facts, (rule,)))


@cache
def bash_syntax(script: bytes) -> str | None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, timeout=30, check=False)
    return done.stderr.decode(errors="replace") if done.returncode else None
