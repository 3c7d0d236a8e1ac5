"""All explanations of `umbilical explain`. The texts are next to the code that they explain."""

from collections.abc import Iterable
from functools import cache
from typing import Final

from umbilical.checks.check import Check
from umbilical.hardway.artifacts.infrastructure.places import SERVICE_PLACES
from umbilical.hardway.explain import library
from umbilical.hardway.explain.entry import Explanation, ExplanationKind, from_topic, sentence
from umbilical.hardway.lessons.catalogue import entries as lessons
from umbilical.hardway.pivot_conditions import CONDITIONS
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Stage
from umbilical.hardway.stages import catalogue
from umbilical.hardway.validators.catalogue import VALIDATORS
from umbilical.hardway.validators.scratch import ScratchCopy

PIVOT: Final = 13
_LINES: Final = {
    "P1": "kubectl get nodes -o wide",
    "P2": "etcdctl member list -w table; etcdctl endpoint health --cluster",
    "P3": "kubectl --server=https://MASTER:6443 get --raw '/readyz?verbose'",
    "P4": "kubectl --server=https://MASTER:6443 -n kube-system get configmap umbilical-nonce -o jsonpath={.data.nonce}",
    "P5": "kubectl --server=https://BOOTSTRAP:6443 create token default; kubectl "
    "--server=https://MASTER:6443 --token=TOKEN auth whoami",
    "P6": "kubectl --server=https://MASTER:6443 auth whoami; on a master: kubectl "
    "--kubeconfig=/var/lib/kubelet/kubeconfig --server=https://MASTER:6443 get nodes",
    "P7": f"echo 'show stat' | socat - {SERVICE_PLACES.stats_socket} | cut -d, -f1,2,18,37",
    "P8": "kubectl --server=https://MASTER:6443 create --dry-run=server -f OBJECT-OF-THE-WEBHOOK",
}
_RECORD: Final = (
    Explanation(
        ExplanationKind.FILE,
        "cluster.yaml",
        "The only file that you write: profile, names, networks, nodes, release. All artifacts are rendered from it.",
        stage=1,
        readers="Every command of `umbilical stage` and `umbilical config`.",
        without="UMB701: there is no cluster.yaml in the directory.",
        by_hand="umbilical config view --origin --dir DIR",
        installer="install-config.yaml, which the installer consumes and deletes.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "state.json",
        "Progress of the cluster: for every stage its status, hashes of its inputs, results of its checks, and how to "
        "undo every side effect. Contains no secrets.",
        stage=1,
        readers="umbilical stage run, which resumes from it; stage list, status, rollback and doctor.",
        without="It is rebuilt from events.jsonl. Without both files the made changes are unknown (UMB722).",
        by_hand="jq '.stages | map_values(.status)' .umbilical/state.json",
        installer=".openshift_install_state.json, which holds every asset, but no stages and no undo information.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "events.jsonl",
        "Journal of all events, one JSON object per line. Each is written before the action; lines are only appended.",
        stage=1,
        readers="umbilical stage run, to resume after a kill; umbilical stage watch.",
        without="After a kill it is unknown which side effects were made.",
        by_hand="tail -n 20 .umbilical/events.jsonl | jq -c .",
        installer=".openshift_install.log, which is for people only.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "identity.json",
        "Random values of this cluster: its id, its infrastructure name, the kubeadmin password.",
        stage=1,
        readers="Every command that renders artifacts.",
        without="The next rendering would have another cluster id and another password.",
        by_hand="stat -c '%a %n' .umbilical/identity.json",
        installer="Keeps the same values in .openshift_install_state.json.",
    ),
)


_INFRASTRUCTURE: Final = Explanation(
    ExplanationKind.CHECK,
    "INFRA-*",
    "One fact about what stage 02 has built, such as a network, a DNS name, an address or a machine.",
    stage=2,
    readers="Stage 02, which is done when its checks pass; umbilical stage status and doctor.",
    without="Machines cannot reach each other, the load balancer or other networks.",
    by_hand="umbilical stage status 02 --dir DIR",
    fix="umbilical stage retry 2",
)


@cache
def entries() -> tuple[Explanation, ...]:
    """List all explanations except those of stages' checks and error codes, which the command line adds."""
    return (
        *_stages(),
        *library.entries(),
        *map(_judge, VALIDATORS),
        *_RECORD,
        *map(_condition, CONDITIONS),
        *lessons(),
    )


def checks(sites: Iterable[Site]) -> list[Explanation]:
    """Explain the checks of stages that `entries` lacks, as clusters like these have them."""
    known = {one.name for one in entries() if one.kind in (ExplanationKind.RULE, ExplanationKind.CONDITION)}
    found: dict[str, Explanation] = {}
    for site in sites:
        for stage in catalogue.stages():
            for check in stage.own_checks(site):
                told = _check(check, stage, site)
                found.setdefault(told.name, told)
    return [*(one for one in found.values() if one.name not in known), _INFRASTRUCTURE]


def _check(check: Check[Site], stage: Stage, site: Site) -> Explanation:
    node = next((one.id for one in site.cluster.nodes if check.id.endswith(f"-{one.id}")), None)

    def general(text: str) -> str:
        return text if node is None else text.replace(node, "NODE")

    return Explanation(
        ExplanationKind.CHECK,
        general(check.id),
        sentence(general(check.title)),
        stage=stage.number,
        readers=f"Stage {stage.number:02}, which is done when its checks pass; umbilical stage status and doctor.",
        without=sentence(general(check.why)),
        by_hand=f"umbilical stage status {stage.number:02} --dir DIR",
        fix=general(check.fix),
    )


def _stages() -> list[Explanation]:
    named = {f"{stage.number:02}": stage for stage in catalogue.stages()}
    return [from_topic(topic, _names(named[topic.name])) for topic in catalogue.topics() if topic.name in named]


def _names(stage: Stage) -> tuple[str, ...]:
    return (str(stage.number), stage.name, f"stage {stage.number:02}", f"stage {stage.number}")


def _judge(check: Check[ScratchCopy]) -> Explanation:
    """Explain a rule that an external validator checks."""
    return Explanation(
        ExplanationKind.RULE,
        check.id,
        sentence(check.title),
        scope="if the program is installed",
        readers="umbilical stage lint, unless --no-judges is given.",
        without=sentence(check.why),
        by_hand=f"umbilical stage lint --only {check.id} --dir DIR",
        fix=check.fix,
    )


def _condition(condition: Condition) -> Explanation:
    return Explanation(
        ExplanationKind.CONDITION,
        condition.id,
        sentence(condition.title),
        stage=PIVOT,
        scope="before the pivot, twice",
        readers="Stage 13, which changes nothing unless all pivot conditions hold (UMB745).",
        without=sentence(condition.why),
        by_hand=_LINES[condition.id],
        installer="It waits for conditions of the etcd operator and revisions of static pods, and checks nothing else.",
        fix=condition.fix,
    )
