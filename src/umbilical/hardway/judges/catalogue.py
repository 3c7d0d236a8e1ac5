"""All judges, in the order in which they speak."""

from typing import Final

from umbilical.checks.check import Check, Finding, judge
from umbilical.hardway.judges.balancer import balancer_faults
from umbilical.hardway.judges.bench import Bench, Lookup, judge_by, on_path, open_bench
from umbilical.hardway.judges.certificates import certificate_faults
from umbilical.hardway.judges.etcd import etcd_faults
from umbilical.hardway.judges.ignition import PROGRAM as IGNITION_VALIDATE
from umbilical.hardway.judges.ignition import ignition_faults
from umbilical.hardway.judges.objects import object_faults
from umbilical.hardway.judges.scripts import style_faults, syntax_faults
from umbilical.hardway.lint.facts import Facts

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
        return judge(judges, bench)
