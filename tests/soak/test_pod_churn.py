"""Pods that come, change and go at random, on nodes whose runner is killed now and then: nothing is left of them."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.labs import WAYS, isolated, running, wait_until

from umbilical.lab.images import UMBILICAL
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab
from umbilical.lab.runners import NAME, runner_of

NODE = "master-0"
ROUNDS = 100
NAMES = ("a", "b", "c", "d")
SCRIPTS = (
    "sleep 1000",
    "exit 1",
    "trap '' TERM; setsid sleep 1000 & while true; do sleep 1; done",
    "setsid sleep 1000 &",
    "trap 'exit 0' TERM; while true; do sleep 0.05; done",
)


def manifest(name: str, draw: random.Random) -> bytes:
    spec: dict[str, Any] = {
        "hostNetwork": draw.random() < 0.3,
        "terminationGracePeriodSeconds": draw.choice((0, 1)),
        "volumes": [{"name": "v", "emptyDir": draw.choice(({}, {"medium": "Memory"}))}],
        "containers": [
            {
                "name": f"c{number}",
                "image": draw.choice((UMBILICAL, UMBILICAL, "localhost/none:lab")),
                "command": ["sh", "-c", draw.choice(SCRIPTS)],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
            for number in range(draw.choice((1, 2)))
        ],
    }
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).encode()


def change(lab: Lab, draw: random.Random) -> None:
    path = f"/etc/kubernetes/manifests/{draw.choice(NAMES)}.yaml"
    if draw.random() < 0.04:
        lab.stop(NODE, NAME, kill=True)
        runner_of(lab).start(lab, NODE, None)
    elif draw.random() < 0.4 and lab.exists(NODE, path):
        lab.remove(NODE, path)
    else:
        lab.write(NODE, path, manifest(Path(path).stem, draw))


def picture(lab: Lab) -> dict[str, list[str]]:
    """Everything on the node that pods could leave behind."""
    commands = {
        "files": "find /run/podrunner/netns /var/lib/podrunner/pods -mindepth 1 2>/dev/null",
        "mounts": "grep podrunner /proc/mounts",
        "links": "cut -d: -f1 /proc/net/dev",
        "processes": "ps -A -o args= | grep -x 'sleep 1000'",
    }
    return {name: lab.exec(NODE, ["sh", "-c", script]).text.splitlines() for name, script in commands.items()}


@pytest.mark.soak
@pytest.mark.real("unshare", "nsenter", "nft")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_nothing_is_left_of_pods_that_came_and_went(way: Isolation, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    with isolated(way), running(tmp_path / "lab") as lab:
        runner_of(lab).start(lab, NODE, None)
        wait_until(lambda: lab.exists(NODE, "/run/podrunner/status.json"))
        before = picture(lab)
        for _ in range(ROUNDS):
            change(lab, draw)
            lab.exec(NODE, ["sleep", str(draw.choice((0, 0.05, 0.3, 0.7)))])
        for name in NAMES:
            if lab.exists(NODE, f"/etc/kubernetes/manifests/{name}.yaml"):
                lab.remove(NODE, f"/etc/kubernetes/manifests/{name}.yaml")
        wait_until(lambda: runner_of(lab).pods(lab, NODE) == [], seconds=60)
        assert picture(lab) == before
        assert "unexpected error" not in lab.log(NODE, NAME)
        assert "something is left" not in lab.log(NODE, NAME)
        assert "could not clean up" not in lab.log(NODE, NAME)
