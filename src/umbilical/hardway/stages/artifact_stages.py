"""Stages 05 to 08, which only write what their recipes made and let the lint judge it; and how a stage writes files.

Files are whole or absent, with their modes, and only those that differ are written.
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
# Whoever reads these takes all that lies there. Keys are never removed by the way, and machine-config/ has outputs.
SWEPT: Final = (
    layout.MANIFESTS,
    layout.STATIC_PODS,
    layout.LATE_STATIC_PODS,
    layout.IGNITION,
    layout.INFRASTRUCTURE,
)


def writing_steps(site: Site, number: int, reason: str = "") -> list[Step]:
    """One step for each folder that the stage writes to. `reason`: why another stage writes them already."""
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
    """One step if an earlier rendering left files behind: of a node that is gone, of an option that is off."""
    left = leftovers(site, number)
    if not left:
        return []
    shown = " ".join(shlex.quote(f"{ARTIFACTS}/{name}") for name in left)
    title = f"remove {_counted(len(left))} that no longer belong to the rendering"
    return [Step(title, f"rm {shown}", lambda: write_artifacts(site.folder, (), left))]


def is_swept(path: str) -> bool:
    """Tell whether whoever reads the directory takes all of it, so that files that are left over count."""
    return path.partition("/")[0] in SWEPT


def leftovers(site: Site, number: int) -> list[str]:
    root = site.folder / ARTIFACTS
    tops = {name.partition("/")[0] for name in site.files.get(number, ())} & set(SWEPT)
    found = (path for top in sorted(tops) for path in sorted((root / top).rglob("*")) if path.is_file())
    return [name for path in found if (name := str(path.relative_to(root))) not in site.assets]


def written_check(number: int) -> Check[Site]:
    """The check of a stage that its files are on disk, byte for byte as they are rendered."""

    def judge(site: Site) -> Verdict:
        if not site.files.get(number):
            return skipped("it writes no file in this profile")
        wrong = [text for name in site.files.get(number, ()) if (text := _difference(site, name))]
        wrong += [f"{name} is of no use any more" for name in leftovers(site, number)]
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        return failed("; ".join(wrong[:MAX_NAMED]) + more) if wrong else passed()

    return Check(
        f"ART-{number:02}",
        "the files of this stage lie on disk as they are rendered",
        "a file that somebody changed by hand, or whose mode is wider, is not what the other checks have judged",
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
        return f"{name} has another content"
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
    """Return the rules whose ids begin with one of these groups, or are among `ids`. What they decode is shared."""
    # Only rules about the config ask what git would take, and git is another program.
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
    """Letters of the lint rules that judge it."""
    needs: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()
    """Single rules of other groups."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        """What its recipes made; without a release some of them made nothing yet."""
        mine = (recipe.id for recipe in RECIPES if recipe.stage == self.number)
        return {name: site.hashes[name] for name in mine if name in site.hashes}

    def steps(self, site: Site) -> Sequence[Step]:
        return [
            *writing_steps(site, self.number),
            *sweeping_steps(site, self.number),
        ]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [written_check(self.number), *lint_checks(site, self.groups, self.rules)]

    def outputs(self, site: Site) -> Mapping[str, str]:
        return hashes(site, self.number)


PKI: Final[Stage] = ArtifactStage(5, "pki", "make keys and certificates", groups=("PKI",))
_PKI_TOPIC: Final = stage_topic(
    5,
    "Writes every signer, certificate and key pair of the cluster below tls/. Each signer signs itself and has one "
    "purpose, so that trust in one of them is trust in nothing else. Keys stay as they are until `stage rotate`.",
    "etcd, kube-apiserver, the other control-plane programs, kubelets and administrators; and the operators, which "
    "take some signers over.",
    "etcd refuses its peers (`tls: bad certificate`), kubelets and tokens are unknown to the masters after the "
    "pivot, or a program calls an address that no certificate names.",
    "openssl verify -purpose sslserver -CAfile artifacts/tls/etcd-signer.crt artifacts/tls/etcd-serving-bootstrap.crt",
    "Makes the same signers in memory, writes them into bootstrap.ign and keeps them in its state file.",
)


KUBECONFIGS: Final[Stage] = ArtifactStage(6, "kubeconfigs", "write the kubeconfigs", ("KC",), needs=(5,))
_KUBECONFIGS_TOPIC: Final = stage_topic(
    6,
    "Writes the kubeconfigs below auth/: for administrators from outside, for the bootstrap node's own programs on "
    "localhost, and the one by which a new kubelet asks for its first certificate.",
    "kubectl, kube-controller-manager, kube-scheduler, the cluster-version operator, and every kubelet once.",
    "A wrong server name ends in `x509: certificate is valid for ..., not ...`; programs of the bootstrap node "
    "that ask through the load balancer wait for an API that waits for them.",
    "kubectl --kubeconfig artifacts/auth/admin.kubeconfig config view --minify",
    "Makes four: for administrators outside and inside, a loopback one, and the kubelets'.",
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
    "Writes the static pods of every node and, in the order in which they are applied, the first objects: "
    "namespaces, rights, CRDs, configuration, and all that operators take over from the bootstrap node.",
    "Kubelets read static pods from a directory; the apply engine of stage 10 reads the manifests.",
    "Without a FeatureGate that names the version the cluster-version operator restarts for ever; without the "
    "hand-off objects operators make signers of their own, and nobody trusts anybody.",
    "kubectl apply --dry-run=client -f artifacts/manifests/",
    "Runs the `render` command of each operator on the bootstrap node, and cluster-bootstrap applies what they print.",
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
    "Writes ignition/<node>.ign: host name, network, keys, static pods, kubelet and their units, merged by path "
    "onto a rendered machine config, or onto a small base of our own where there is none.",
    "Ignition, in the first seconds of a machine's first boot, and never again.",
    "A path that is written twice stops the boot (`duplicate entry defined`); a missing kubelet-ca.crt stops the "
    "kubelet; a keyfile that others may read is ignored by NetworkManager.",
    "jq -r '.storage.files[].path' artifacts/ignition/bootstrap.ign | sort",
    "Writes bootstrap.ign whole; masters and workers get a pointer, and the machine-config server the rest.",
)
STAGES: Final[tuple[Stage, ...]] = (PKI, KUBECONFIGS, MANIFESTS, IGNITION)
TOPICS: Final = (_PKI_TOPIC, _KUBECONFIGS_TOPIC, _MANIFESTS_TOPIC, _IGNITION_TOPIC)
