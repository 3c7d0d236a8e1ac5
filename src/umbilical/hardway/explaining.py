"""All explanations of the hard way.

The texts stand beside the code: artifacts, rules, stages, conditions of the pivot, lessons.
"""

from functools import cache
from typing import Final

from umbilical.checks.check import Check
from umbilical.hardway.artifacts.infrastructure.places import SERVICE_PLACES
from umbilical.hardway.explain import library
from umbilical.hardway.explain.entry import Explanation, ExplanationKind, from_topic, sentence
from umbilical.hardway.judges.bench import Bench
from umbilical.hardway.judges.catalogue import JUDGES
from umbilical.hardway.lessons.catalogue import entries as lessons
from umbilical.hardway.pivot_conditions import CONDITIONS
from umbilical.hardway.stage import Condition, Stage
from umbilical.hardway.stages import catalogue

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
        "The one file that a person writes: profile, names, networks, nodes, release. All else follows from it.",
        stage=1,
        readers="Every command of `umbilical stage` and `umbilical config`.",
        without="UMB701: there is no cluster.yaml in the directory.",
        by_hand="umbilical config view --origin --dir DIR",
        installer="install-config.yaml, which the installer consumes: it is gone afterwards, unless a copy was kept.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "state.json",
        "How far a cluster is: every stage with its status, the hashes of what it was made from, what its checks saw, "
        "and the inverse of every side effect. No secrets.",
        stage=1,
        readers="Stage run, which goes on from it; stage list, status, rollback and doctor.",
        without="It is made again from the journal beside it; without both nothing tells what was made (UMB722).",
        by_hand="jq '.stages | map_values(.status)' .umbilical/state.json",
        installer=".openshift_install_state.json, with every asset in it; it knows no stages and no inverses.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "events.jsonl",
        "Everything that happened, one line each, written before it is done. Only ever added to.",
        stage=1,
        readers="Whoever resumes after a kill; umbilical stage watch.",
        without="A killed run could not say which of its side effects were made.",
        by_hand="tail -n 20 .umbilical/events.jsonl | jq -c .",
        installer=".openshift_install.log is for people; nothing is read back from it.",
    ),
    Explanation(
        ExplanationKind.FILE,
        "identity.json",
        "What was drawn at random once for this cluster: its id, its infrastructure name, the first password.",
        stage=1,
        readers="Whatever renders artifacts: the same every time.",
        without="A cluster rendered anew would be another one, with another id and another password.",
        by_hand="stat -c '%a %n' .umbilical/identity.json",
        installer="The same values lie in .openshift_install_state.json.",
    ),
)


@cache
def entries() -> tuple[Explanation, ...]:
    """List everything that can be explained, apart from the codes of errors, which belong to the command line."""
    return (
        *_stages(),
        *library.entries(),
        *map(_judge, JUDGES),
        *_RECORD,
        *map(_condition, CONDITIONS),
        *lessons(),
    )


def _stages() -> list[Explanation]:
    named = {f"{stage.number:02}": stage for stage in catalogue.stages()}
    return [from_topic(topic, _names(named[topic.name])) for topic in catalogue.topics() if topic.name in named]


def _names(stage: Stage) -> tuple[str, ...]:
    return (str(stage.number), stage.name, f"stage {stage.number:02}", f"stage {stage.number}")


def _judge(check: Check[Bench]) -> Explanation:
    """A rule that another program knows."""
    return Explanation(
        ExplanationKind.RULE,
        check.id,
        sentence(check.title),
        scope="if the program is there",
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
        readers="stage 13: with one that does not hold nothing is changed (UMB745).",
        without=sentence(condition.why),
        by_hand=_LINES[condition.id],
        installer="It waits for conditions of the etcd operator and for revisions of static pods, which is less.",
        fix=condition.fix,
    )
