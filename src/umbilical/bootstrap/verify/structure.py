"""Checks S: the file is a valid Ignition config of an installer, with or without the tunnel."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.bootstrap.patch.plan import LIMIT_BYTES, SECRET_PLATFORMS, WARNING_BYTES
from umbilical.bootstrap.verify.documents import dig, mappings, shown
from umbilical.bootstrap.verify.facts import BootstrapCheck, BootstrapFacts, bootkube, rule
from umbilical.checks.check import Check, Doubt, Verdict, failed, passed
from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config, file_of
from umbilical.ignition.data_url import is_data_url
from umbilical.ignition.structure import structure_faults

VERSION: Final = re.compile(r"3\.[0-5]\.0")
MAX_MODE: Final = 0o7777
UNIT: Final = "bootkube.service"
WARNING_SECONDS: Final = 6 * 3600
FAILURE_SECONDS: Final = 30 * 60
AGAIN: Final = "create the file again: openshift-install create ignition-configs"


def _version(facts: BootstrapFacts) -> Verdict:
    if facts.config is None:
        return failed(facts.config_fault)
    if not VERSION.fullmatch(facts.config.version):
        return failed(f"ignition.version is {shown(facts.config.version)}, not 3.0.0 to 3.5.0")
    return passed(facts.config.version)


def _pointer(facts: BootstrapFacts) -> Iterator[str]:
    if _config(facts).is_pointer:
        yield "ignition.config names another config (replace or merge)"


def _paths(facts: BootstrapFacts) -> Iterator[str]:
    seen: set[str] = set()
    for kind in ("files", "directories", "links"):
        for entry in mappings(dig(_config(facts).value, "storage", kind)):
            path = entry.get("path")
            if not isinstance(path, str) or not path.startswith("/"):
                yield f"{shown(path)} is not an absolute path"
                continue
            clean = posixpath.normpath(path)
            if clean in seen:
                yield f"{shown(path)} occurs twice"
            seen.add(clean)


def _modes(facts: BootstrapFacts) -> Iterator[str]:
    for kind in ("files", "directories"):
        for entry in mappings(dig(_config(facts).value, "storage", kind)):
            mode = entry.get("mode")
            is_integer = isinstance(mode, int) and not isinstance(mode, bool)
            if mode is not None and not (is_integer and 0 <= mode <= MAX_MODE):
                yield f"{shown(entry.get('path'))} has mode {shown(mode)}"


def _data_urls(facts: BootstrapFacts) -> Iterator[str]:
    files = _config(facts).files
    for index, content in facts.contents.items():
        if isinstance(content, IgnitionError):
            yield f"{files[index].path}: {content.why}"
    for entry in mappings(dig(_config(facts).value, "storage", "files")):
        for resource in mappings(entry.get("append")):
            yield from _appended_faults(entry, resource)


def _appended_faults(entry: dict[Any, Any], resource: dict[Any, Any]) -> Iterator[str]:
    file = file_of({"path": entry.get("path"), "contents": resource})
    if is_data_url(file.source or ""):
        try:
            file.content()
        except IgnitionError as fault:
            yield f"{file.path}: append: {fault.why}"


def _size(facts: BootstrapFacts) -> Iterator[str]:
    size = len(facts.content)
    if size > LIMIT_BYTES:
        yield f"{size} bytes; the limit on {facts.found_platform} is {LIMIT_BYTES}"
    elif size > WARNING_BYTES:
        yield Doubt(f"{size} bytes of {LIMIT_BYTES}")


def _needs_secret(facts: BootstrapFacts) -> str | None:
    platform = facts.found_platform
    if platform is None:
        return "the platform is not known; add --platform NAME"
    return None if platform in SECRET_PLATFORMS else f"{platform} does not carry the file in a Secret"


def _scripts(facts: BootstrapFacts) -> Iterator[str]:
    for path in (BOOTKUBE, RELEASE_IMAGE, SERVICE_RECORD):
        count = len(_config(facts).files_at(path))
        if count != 1:
            yield f"{path} occurs {count} times, not once"


def _unit(facts: BootstrapFacts) -> Iterator[str]:
    units = [unit for unit in _config(facts).units if unit.name == UNIT]
    if len(units) != 1:
        yield f"{UNIT} occurs {len(units)} times, not once"
        return
    if units[0].mask:
        yield f"{UNIT} is masked"
    lines = [line.strip() for line in (units[0].contents or "").splitlines()]
    if f"ExecStart={BOOTKUBE}" not in lines:
        yield f"{UNIT} does not start {BOOTKUBE}"


def _in_place(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.bootkube is not None
    for command in facts.bootkube.commands:
        if "BOOTSTRAP_INPLACE=true" in command.assignments:
            yield f"line {command.line} of bootkube.sh: BOOTSTRAP_INPLACE=true"


def _expiry(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.now is not None
    for path, not_after in _certificates(facts):
        left = not_after - facts.now
        if left < FAILURE_SECONDS:
            yield f"{path}: {_clock(left)}"
        elif left < WARNING_SECONDS:
            yield Doubt(f"{path}: {_clock(left)}")


def _certificates(facts: BootstrapFacts) -> Iterator[tuple[str, float]]:
    """Yield the expiry of every certificate that the installer checks when it loads the file."""
    from umbilical.pki.certificate import read_certificates
    from umbilical.pki.pem import BundleError

    files = _config(facts).files
    for index, content in facts.contents.items():
        path = files[index].path
        if path.endswith(".crt") and isinstance(content, bytes):
            try:
                certificates = read_certificates(content)
            except BundleError:
                continue
            yield path, min(certificate.not_after.timestamp() for certificate in certificates)


def _needs_clock(facts: BootstrapFacts) -> str | None:
    if facts.now is None:
        return "the current time was not given"
    return None if any(_certificates(facts)) else "the file contains no certificate"


def time_left(facts: BootstrapFacts) -> str | None:
    """Return the time left of the certificate that expires first; None without one."""
    if facts.config is None or facts.now is None:
        return None
    ends = [end for _, end in _certificates(facts)]
    return _clock(min(ends) - facts.now) if ends else None


def _clock(seconds_left: float) -> str:
    minutes = int(abs(seconds_left) // 60)
    span = f"{minutes // 60}h{minutes % 60:02}m"
    return f"{span} left" if seconds_left >= 0 else f"expired {span} ago"


def _config(facts: BootstrapFacts) -> Config:
    assert facts.config is not None
    return facts.config


STRUCTURE: Final[tuple[BootstrapCheck, ...]] = (
    Check(
        "S1",
        "the file is an Ignition config of version 3.0 to 3.5",
        "Ignition rejects other versions, and the machine does not boot",
        AGAIN,
        _version,
    ),
    rule(
        "S2",
        "the config is not a pointer to another config",
        "at boot the config that it points to replaces everything that is checked or patched here",
        "give the bootstrap.ign that is uploaded, not the pointer that fetches it",
        _pointer,
    ),
    rule(
        "S3",
        "every path is absolute and occurs once",
        "Ignition rejects the whole config, and the bootstrap machine never starts",
        "remove the second entry of that path",
        _paths,
    ),
    rule(
        "S4",
        "every mode is an integer from 0 to 4095",
        "Ignition rejects the whole config; modes are decimal in JSON, so 0555 is written as 365",
        "write the mode in decimal",
        _modes,
    ),
    rule(
        "S5",
        "every embedded file can be decoded and matches its hash",
        "Ignition stops at boot if it cannot decode a file or if a hash differs",
        AGAIN,
        _data_urls,
    ),
    rule(
        "S6",
        "the file fits into the Secret that carries it",
        "the installer's local API server rejects a Secret over 1 MiB, and no bootstrap machine is created",
        "remove extra manifests from openshift/ and create them after the installation",
        _size,
        _needs_secret,
    ),
    rule(
        "S7",
        "bootkube.sh, release-image.sh and the service record exist once each",
        "without them the file is not a bootstrap config, and the tunnel's bootkube steps cannot run",
        "give the installer's bootstrap.ign; master.ign and worker.ign do not contain them",
        _scripts,
    ),
    rule(
        "S8",
        "the unit bootkube.service exists and starts bootkube.sh",
        "without it nothing runs the script, and the installation times out waiting for the API",
        AGAIN,
        _unit,
    ),
    rule(
        "S9",
        "the installation is not bootstrap-in-place",
        "no node joins while the bootstrap kube-apiserver runs, so no agent could connect",
        "no action needed: single-node installations need no tunnel",
        _in_place,
        bootkube,
    ),
    rule(
        "S10",
        "the installer's certificates outlive the installation",
        "they are valid for one day; with an expired one the installer does not load the file",
        AGAIN,
        _expiry,
        _needs_clock,
    ),
    rule(
        "S11",
        "Ignition accepts the files and units at boot",
        "Ignition rejects the whole config on the first violation",
        AGAIN,
        lambda facts: structure_faults(_config(facts).value),
    ),
)
