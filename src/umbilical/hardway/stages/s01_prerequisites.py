"""Stage 01: check programs, host capacity, pull secret, SSH key and config before anything starts."""

import base64
import binascii
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.fault import HostError
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.machines.interface import Survey
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step
from umbilical.hardway.stages.artifact_stages import lint_checks
from umbilical.host import processes

PROGRAMS: Final[Mapping[ClusterProfile, tuple[str, ...]]] = {
    ClusterProfile.OPENSHIFT: ("podman", "oc", "openssl", "virsh", "qemu-img", "coreos-installer", "haproxy", "ssh"),
    ClusterProfile.KUBERNETES: (
        *("etcd", "etcdctl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
        *("kube-proxy", "coredns", "containerd", "runc", "ip", "nft", "iptables", "haproxy", "nsenter", "openssl"),
    ),
}
"""Required programs; a survey may add more."""
REGISTRIES: Final = ("quay.io", "registry.redhat.io")
"""Registries of a release's images."""
OLDEST_OPENSSL: Final = (1, 1, 1)
OPENSSL_SECONDS: Final = 10.0
_SSH_KEY: Final = re.compile(r"(?P<kind>(?:ssh|ecdsa|sk)-[A-Za-z0-9@.-]+) (?P<blob>[A-Za-z0-9+/=]+)(?: .*)?")


@dataclass(frozen=True)
class HostCapacity:
    cores: int
    memory_mib: int
    free_disk_gib: int

    def lacking(self, survey: Survey) -> list[str]:
        pairs = (
            ("cores", survey.cores, self.cores),
            ("MiB of memory", survey.memory_mib, self.memory_mib),
            ("GiB free on disk", survey.free_disk_gib, self.free_disk_gib),
        )
        return [f"{has} {unit} instead of {needed}" for unit, has, needed in pairs if has < needed]


LEAST: Final = {MachinesKind.LIBVIRT: HostCapacity(8, 32_000, 50), MachinesKind.LAB: HostCapacity(2, 3_000, 5)}
"""Six virtual machines already overcommit this; a lab shares the host's kernel and page cache."""
COMFORTABLE: Final = {MachinesKind.LIBVIRT: HostCapacity(16, 64_000, 200), MachinesKind.LAB: HostCapacity(4, 8_000, 10)}


class PrerequisitesStage:
    number = 1
    name = "prerequisites"
    title = "check the host, credentials and config"
    needs: tuple[int, ...] = ()

    def inputs(self, site: Site) -> Mapping[str, str]:
        cluster = site.cluster
        told = (cluster.profile, cluster.machines, cluster.access, sorted(cluster.sizes.items(), key=str))
        return {"needs": hashlib.sha256(repr(told).encode()).hexdigest()}

    def steps(self, site: Site) -> Sequence[Step]:
        return []

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return list(_checks(cache(lambda: site.machines.survey(site.cluster))))

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [*self.own_checks(site), *lint_checks(site, ("CFG",))]


def _checks(survey: Callable[[], Survey]) -> Iterator[Check[Site]]:
    yield Check(
        "PRE-01",
        "all required programs are installed",
        "later stages start them",
        "install the missing programs; umbilical explain 01",
        lambda site: _programs(site.cluster, survey()),
    )
    yield Check(
        "PRE-02",
        "the host has enough cores, memory and disk",
        "etcd loses its leader on a host that swaps, and images fill a small disk",
        "use a larger host, or fewer or smaller nodes",
        lambda site: _room(site.cluster, survey()),
    )
    yield Check(
        "PRE-03",
        "the pull secret is JSON with credentials for the release's registries",
        "nodes need it to pull the images of the release",
        "download it and set access.pullSecretFile",
        _pull_secret,
    )
    yield Check(
        "PRE-04",
        "the SSH keys are public keys",
        "the pipeline, and you for troubleshooting, log in to the nodes with them",
        "add the line of ~/.ssh/id_ed25519.pub to access.sshKeys",
        _ssh_keys,
    )
    yield Check(
        "PRE-05",
        "openssl is 1.1.1 or newer",
        "older versions lack options that the certificate checks use",
        "install a current openssl",
        lambda site: _openssl(survey()),
    )
    yield Check(
        "PRE-06",
        "the survey of the host found no problem",
        "a problem of the host can stop later stages",
        "fix it, or continue if it does not matter for you",
        lambda site: _notes(survey()),
    )


def _notes(survey: Survey) -> Verdict:
    return warned("; ".join(survey.notes)) if survey.notes else passed()


def _programs(cluster: Cluster, survey: Survey) -> Verdict:
    wanted = dict.fromkeys((*PROGRAMS[cluster.profile], *survey.programs))
    missing = [name for name in wanted if not survey.programs.get(name)]
    return failed(f"missing: {', '.join(missing)}") if missing else passed()


def _room(cluster: Cluster, survey: Survey) -> Verdict:
    lacking = LEAST[cluster.machines].lacking(survey)
    if lacking:
        return failed("; ".join(lacking))
    tight = COMFORTABLE[cluster.machines].lacking(survey)
    return warned("; ".join(tight)) if tight else passed()


def _pull_secret(site: Site) -> Verdict:
    """Report only what is wrong with the pull secret, never its content."""
    if not site.cluster.is_openshift:
        return skipped("upstream images need no pull secret")
    name = site.cluster.access.pull_secret_file
    if not name:
        return failed("access.pullSecretFile is not set")
    found = _read_json(site.folder / Path(name).expanduser())
    if isinstance(found, str):
        return failed(f"{name}: {found}")
    auths = found.get("auths")
    if not isinstance(auths, dict) or not auths:
        return failed(f"{name} has no entry in .auths")
    missing = [registry for registry in REGISTRIES if registry not in auths]
    # Only a warning: a mirror may replace both.
    return warned(f"{name} has no entry for {', '.join(missing)}") if missing else passed()


def _read_json(path: Path) -> dict[str, Any] | str:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, RecursionError):
        return "not JSON"
    return value if isinstance(value, dict) else "not a JSON object"


def _ssh_keys(site: Site) -> Verdict:
    keys = site.cluster.access.ssh_keys
    if not keys and site.cluster.machines is MachinesKind.LAB:
        return skipped("a lab needs no SSH keys")
    if not keys:
        return failed("access.sshKeys is empty")
    wrong = [str(index + 1) for index, key in enumerate(keys) if not is_public_key(key)]
    return failed(f"not a public key: entry {', '.join(wrong)}") if wrong else passed()


def is_public_key(line: str) -> bool:
    """RFC 4253 §6.6: the blob begins with the key type that precedes it."""
    match = _SSH_KEY.fullmatch(line.strip())
    if match is None:
        return False
    try:
        blob = base64.b64decode(match["blob"], validate=True)
        (length,) = struct.unpack_from(">I", blob)
    except (binascii.Error, struct.error):
        return False
    return blob[4 : 4 + length] == match["kind"].encode() and len(blob) > 4 + length


def _openssl(survey: Survey, run: Callable[[Sequence[str], float], str] = processes.run) -> Verdict:
    program = survey.programs.get("openssl")
    if not program:
        return skipped("openssl is not installed")
    try:
        told = run([program, "version"], OPENSSL_SECONDS)
    except HostError as error:
        return failed(error.brief)
    match = re.match(r"(?:OpenSSL|LibreSSL) (\d+)\.(\d+)\.(\d+)", told)
    if match is None:
        return warned(f"unknown version: {told.strip()!r}")
    version = tuple(int(part) for part in match.groups())
    return passed(told.strip()) if version >= OLDEST_OPENSSL else failed(told.strip())


STAGE: Final[Stage] = PrerequisitesStage()
TOPIC: Final = stage_topic(
    1,
    "Checks the host and the config, and changes nothing: programs, cores, memory and disk, pull secret, SSH key, and "
    "every lint rule about the config itself.",
    "Later stages, which start these programs and read these files.",
    "A later stage fails, perhaps after an hour, for a reason that could be found at the start.",
    "umbilical stage status 01",
    "Checks little of this: it asks for the pull secret and expects a suitable host.",
)
