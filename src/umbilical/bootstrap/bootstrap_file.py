"""Reads, verifies and writes the bootstrap.ign of plan, patch and undo. A patched config is verified before writing."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.bootstrap.install_dir import InstallDir
from umbilical.bootstrap.patch.patch import Patch, patch
from umbilical.bootstrap.patch.plan import Plan
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.bootstrap.verify.catalogue import verify
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.checks.check import Finding, Outcome
from umbilical.fault import BootstrapError, Fault, IgnitionError
from umbilical.host.commands import syntax_complaint
from umbilical.host.files import write_file
from umbilical.ignition.document import IgnitionDocument
from umbilical.ignition.json_text import MAX_CONFIG_BYTES

SHOWN_FAILURES: Final = 3


@dataclass(frozen=True)
class BootstrapFile:
    path: Path
    content: bytes
    mode: int
    install_dir: InstallDir | None = None

    def document(self) -> IgnitionDocument:
        """Parse it; errors name the file."""
        try:
            return IgnitionDocument(self.content)
        except IgnitionError as fault:
            raise IgnitionError(fault.code, f"{self.path}: {fault.what}", fault.why, fault.remedy) from None

    def platform(self) -> str | None:
        """The platform of the install directory; None without one: the config itself then decides."""
        if self.install_dir is None:
            return None
        try:
            return self.install_dir.platform
        except BootstrapError:
            return None

    def write(self, target: Path, content: bytes) -> None:
        """Write content atomically, with the mode of the file that was read: it contains keys."""
        # Replace the target of a link, not the link.
        is_same = target == self.path
        place = target.resolve() if is_same else target
        try:
            before = place.stat() if is_same else None
            write_file(place, content, self.mode, overwrite=is_same)
            if before is not None and os.geteuid() == 0:
                os.chown(place, before.st_uid, before.st_gid)
        except OSError as fault:
            remedy = f"check its directory: ls -ld {target.parent}"
            raise Fault("UMB002", f"could not write {target}", fault.strerror or str(fault), remedy) from None


@dataclass(frozen=True)
class PatchedFile:
    plan: Plan
    older_failures: tuple[Finding, ...]
    """Failed checks that also failed before the patch."""
    is_bash_checked: bool
    """Whether `bash -n` checked the scripts."""


def read_file(path: Path, install_dir: InstallDir | None = None) -> BootstrapFile:
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            # One byte over the limit is enough for the parser to report the size.
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"could not read {path}", why, f"check the file: ls -l {path}") from None
    return BootstrapFile(path, content, stat.S_IMODE(status.st_mode), install_dir)


def patch_file(source: BootstrapFile, target: Path, spec: TunnelSpec, platform: str | None) -> PatchedFile:
    """Add the tunnel, verify the result, and write it if it differs from the file.

    Raises Fault: it cannot be patched, or the result fails a check that passed before. Nothing is written then.
    """
    made = patch(source.document(), spec, platform or source.platform())
    is_bash_there = syntax_complaint(b":\n") is None
    older = _failures_before(source, made, is_bash_there)
    if made.document.content != source.content or target != source.path:
        source.write(target, made.document.content)
    return PatchedFile(made.plan, older, is_bash_there)


def _failures_before(source: BootstrapFile, made: Patch, is_bash_there: bool) -> tuple[Finding, ...]:
    """Verify the result. Raises Fault: a check fails that passed before the patch."""
    failures = _failures(made.document.content, made.plan, is_bash_there)
    if not failures:
        return ()
    old = {finding.id for finding in _failures(source.content, made.plan, is_bash_there)}
    ours = [f"{finding.id} {finding.evidence}" for finding in failures if finding.id not in old]
    if ours:
        remedy = "report this with the output of: umbilical bootstrap plan --show-anchors FILE"
        why = "; ".join(ours[:SHOWN_FAILURES])
        raise Fault("UMB132", "the patched config failed its own checks; nothing was written", why, remedy)
    return failures


def _failures(content: bytes, planned: Plan, is_bash_there: bool) -> tuple[Finding, ...]:
    facts = BootstrapFacts(
        content,
        platform=planned.platform,
        shape=planned.spec.shape,
        mode=planned.spec.mode,
        bash_syntax=syntax_complaint if is_bash_there else None,
    )
    return tuple(finding for finding in verify(facts) if finding.outcome is Outcome.FAILED)
