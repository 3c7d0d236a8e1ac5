"""Stages 05 to 08, which write rendered files and check them with the lint; and how any stage writes files.

Files are written atomically with their modes, and only if they differ.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from umbilical.checks.check import Check, Verdict, failed, passed, skipped
from umbilical.checks.report import group_of
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.graph import RECIPES, asset_hash
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.lint.facts import LintFacts, LintRule
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step, Undo
from umbilical.hardway.undoing import ARTIFACTS, REMOVE_FILES
from umbilical.hardway.validators.exposure import exposed
from umbilical.hardway.workspace import write_artifacts

MAX_NAMED: Final = 3
# Directories that are read as a whole. Not tls/: keys are never deleted here; not machine-config/: it has outputs.
SWEPT: Final = (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS, layout.IGNITION, layout.INFRASTRUCTURE)


def writing_steps(site: Site, number: int, reason: str = "") -> list[Step]:
    """One step per folder that the stage writes. `reason`: why another stage writes them earlier."""
    names = sorted(site.files.get(number, ()), key=lambda name: (_folder(name), name))
    return [
        Step(
            f"write {_counted(len(chosen))} to {ARTIFACTS}/{folder}{f', {reason}' if reason else ''}",
            _by_hand(site, chosen),
            _writer(site, chosen),
            Undo(REMOVE_FILES, {"paths": chosen}),
        )
        for folder, group in groupby(names, key=_folder)
        for chosen in [list(group)]
    ]


def sweeping_steps(site: Site, number: int) -> list[Step]:
    """One step to delete files of an earlier rendering, such as those of a removed node."""
    left = leftovers(site, number)
    if not left:
        return []
    shown = " ".join(shlex.quote(f"{ARTIFACTS}/{name}") for name in left)
    title = f"remove {_counted(len(left))} of an earlier rendering"
    return [Step(title, f"rm {shown}", lambda: write_artifacts(site.folder, (), left))]


def is_swept(path: str) -> bool:
    """Whether the file's directory is read as a whole, so that leftover files matter."""
    return path.partition("/")[0] in SWEPT


def leftovers(site: Site, number: int) -> list[str]:
    root = site.folder / ARTIFACTS
    tops = {name.partition("/")[0] for name in site.files.get(number, ())} & set(SWEPT)
    found = (path for top in sorted(tops) for path in sorted((root / top).rglob("*")) if path.is_file())
    return [name for path in found if (name := str(path.relative_to(root))) not in site.assets]


def written_check(number: int) -> Check[Site]:
    """Check that the files of a stage are on disk exactly as rendered."""

    def judge(site: Site) -> Verdict:
        if not site.files.get(number):
            return skipped("the stage writes no files in this profile")
        wrong = [text for name in site.files.get(number, ()) if (text := _difference(site, name))]
        wrong += [f"{name} is left from an earlier rendering" for name in leftovers(site, number)]
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        return failed("; ".join(wrong[:MAX_NAMED]) + more) if wrong else passed()

    return Check(
        f"ART-{number:02}",
        "the files of this stage are on disk as rendered",
        "a file that was changed by hand, or has another mode, is not the one that the other checks verified",
        f"umbilical stage retry {number}",
        judge,
    )


def hashes(site: Site, number: int) -> Mapping[str, str]:
    """Path -> content hash of what a stage writes."""
    return {name: asset_hash(site.assets[name]) for name in site.files.get(number, ())}


def _writer(site: Site, names: Iterable[str]) -> Callable[[], None]:
    def act() -> None:
        write_artifacts(site.folder, [site.assets[name] for name in names if _difference(site, name)])

    return act


def _difference(site: Site, name: str) -> str:
    path, asset = site.folder / ARTIFACTS / name, site.assets[name]
    try:
        content, mode = path.read_bytes(), path.stat().st_mode & 0o7777
    except OSError as error:
        return f"{name}: {error.strerror}"
    if content != asset.content:
        return f"{name} has different content"
    return "" if mode == asset.mode else f"{name} has mode {mode:04o}, not {asset.mode:04o}"


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _by_hand(site: Site, names: list[str]) -> str:
    first = site.assets[names[0]]
    target = shlex.quote(f"{ARTIFACTS}/{names[0]}")
    line = f"install -D -m {first.mode:04o} /dev/stdin {target}"
    return line if len(names) == 1 else f"{line}  # and {len(names) - 1} more: umbilical stage plan"


def _counted(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def lint_checks(site: Site, groups: Sequence[str], ids: Sequence[str] = ()) -> list[Check[Site]]:
    """Return the rules of these groups or ids as checks. They share decoded files."""
    # Only rules of the group CFG need git's view, and starting git is slow.
    seen = exposed(site.folder, site.cluster, site.assets) if "CFG" in groups else None
    facts = LintFacts(site.cluster, site.assets, site.now(), site.has_tunnel, seen)
    chosen = [rule for rule in RULES if site.cluster.profile in rule.profiles]
    return [_check(rule, facts) for rule in chosen if group_of(rule.id) in groups or rule.id in ids]


def _check(rule: LintRule, facts: LintFacts) -> Check[Site]:
    check = rule.check
    return Check(check.id, check.title, check.why, check.fix, lambda site: check.judge(facts))


@dataclass(frozen=True)
class ArtifactStage:
    number: int
    name: str
    title: str
    groups: tuple[str, ...]
    """Groups of lint rules that check it."""
    needs: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()
    """Ids of rules in other groups."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        """Hashes of its recipes; some have no output without a release."""
        mine = (recipe.id for recipe in RECIPES if recipe.stage == self.number)
        return {name: site.hashes[name] for name in mine if name in site.hashes}

    def steps(self, site: Site) -> Sequence[Step]:
        return [*writing_steps(site, self.number), *sweeping_steps(site, self.number)]

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [written_check(self.number)]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [*self.own_checks(site), *lint_checks(site, self.groups, self.rules)]

    def outputs(self, site: Site) -> Mapping[str, str]:
        return hashes(site, self.number)


PKI: Final[Stage] = ArtifactStage(5, "pki", "make keys and certificates", groups=("PKI",))
_PKI_TOPIC: Final = stage_topic(
    5,
    "Writes every signer, certificate and key pair of the cluster below tls/. Each signer is self-signed and has one "
    "purpose, so trusting one signer does not trust another. Keys are kept until `stage rotate`.",
    "etcd, kube-apiserver, the other control-plane programs, kubelets and administrators; and the operators, which "
    "take over some signers.",
    "etcd rejects its peers (`tls: bad certificate`), masters reject kubelets and tokens after the pivot, or a program "
    "dials an address that no certificate contains.",
    "openssl verify -purpose sslserver -CAfile artifacts/tls/etcd-signer.crt artifacts/tls/etcd-serving-bootstrap.crt",
    "Creates the same signers in memory, writes them to bootstrap.ign and keeps them in its state file.",
)


KUBECONFIGS: Final[Stage] = ArtifactStage(6, "kubeconfigs", "write the kubeconfigs", ("KC",), needs=(5,))
_KUBECONFIGS_TOPIC: Final = stage_topic(
    6,
    "Writes the kubeconfigs below auth/: for administrators, for the bootstrap node's own programs on localhost, and "
    "the one with which a new kubelet requests its first certificate.",
    "kubectl, kube-controller-manager, kube-scheduler, the cluster-version operator, and every kubelet once.",
    "A wrong server name causes `x509: certificate is valid for ..., not ...`. Programs of the bootstrap node that use "
    "the load balancer wait for an API that cannot start without them.",
    "kubectl --kubeconfig artifacts/auth/admin.kubeconfig config view --minify",
    "Creates four: two for administrators (external and internal), one for loopback, one for kubelets.",
)


MANIFESTS: Final[Stage] = ArtifactStage(
    7,
    "manifests",
    "write static pods and cluster manifests",
    groups=("CVO", "CRD", "FG", "ETC", "KP", "KN", "INF", "NET", "CC", "EE", "DNS", "ING", "MAN", "HO"),
    needs=(4, 5, 6),
    rules=("BK-03",),
)
_MANIFESTS_TOPIC: Final = stage_topic(
    7,
    "Writes the static pods of every node and the first objects, numbered in the order in which they are applied: "
    "namespaces, RBAC, CRDs, configuration, and what operators take over from the bootstrap node.",
    "Kubelets read static pods from a directory; the apply engine of stage 10 reads the manifests.",
    "Without a FeatureGate for the version the cluster-version operator restarts forever. Without the hand-off objects "
    "operators create new signers, which nodes and clients do not trust.",
    "kubectl apply --dry-run=client -f artifacts/manifests/",
    "Runs the `render` command of each operator on the bootstrap node; cluster-bootstrap applies the output.",
)


IGNITION: Final[Stage] = ArtifactStage(
    8,
    "ignition",
    "write an Ignition config for every node",
    groups=("IGN", "CRIO", "SE", "AU"),
    needs=(4, 5, 6, 7),
    rules=("BK-01", "BK-02"),
)
_IGNITION_TOPIC: Final = stage_topic(
    8,
    "Writes ignition/<node>.ign: host name, network, keys, static pods, kubelet and systemd units, merged by path into "
    "a rendered machine config, or into a small built-in base if there is none.",
    "Ignition, once, at the start of a machine's first boot.",
    "A duplicate path stops the boot (`duplicate entry defined`); without kubelet-ca.crt the kubelet does not start; "
    "NetworkManager ignores a keyfile that others may read.",
    "jq -r '.storage.files[].path' artifacts/ignition/bootstrap.ign | sort",
    "Writes a complete bootstrap.ign; masters and workers get a pointer to the machine-config server.",
)
STAGES: Final[tuple[Stage, ...]] = (PKI, KUBECONFIGS, MANIFESTS, IGNITION)
TOPICS: Final = (_PKI_TOPIC, _KUBECONFIGS_TOPIC, _MANIFESTS_TOPIC, _IGNITION_TOPIC)
