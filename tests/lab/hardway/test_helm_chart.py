"""The chart in a cluster of the lab, with the built image, real kubelets and helm: from install to uninstall.

`make soak` builds the image first. docs/chart.md has the same commands.
"""

import contextlib
import json
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.hardway_lab import PROGRAMS
from tests.support.hardway_run import Cluster
from tests.support.image_archives import built, built_archive
from tests.support.labs import control_groups_of, machine_picture, processes_naming, wait_until

import chart
from conformance_run import read_tunnel_use
from umbilical import __version__
from umbilical.cli.stage.cluster import LAB
from umbilical.lab.lab import Lab

SECONDS: Final = 300.0
"""For a rollout: agents find a new server within half a minute, and servers are replaced one after the other."""
pytestmark = [
    pytest.mark.usefixtures("own_machine"),
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.timeout(1800),
    built,
    pytest.mark.real(
        *PROGRAMS,
        *("etcd", "etcdctl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"),
        *("helm", "openssl", "curl", "jq"),
    ),
]
MASTER: Final = "master-0"
KEPT: Final = {"umbilical-ca", "umbilical-server", "umbilical-agent", "umbilical-client"}
"""Secrets that outlive a release, as docs/chart.md says."""
WATCHER: Final = "watcher"
ROW: Final = re.compile(r"^ +\d+ ")
CLIENTS_ADDRESS: Final = "172.30.0.91"
APISERVER: Final = "/etc/kubernetes/manifests/kube-apiserver.yaml"
EGRESS: Final = "/etc/kubernetes/egress-selector.yaml"
KEYS: Final = "/etc/kubernetes/umbilical"
MIB: Final = 1 << 20


class Release:
    """The chart's release in a cluster, by the commands of a user."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def helm(self, verb: str, *words: str) -> str:
        return self.cluster.succeed("helm", "--", *verb.split(), chart.RELEASE, *words, "-n", chart.NAMESPACE)

    def kubectl(self, *words: str) -> str:
        return self.cluster.succeed("kubectl", "--", "-n", chart.NAMESPACE, *words)

    def items(self, *what: str) -> list[Any]:
        found: list[Any] = json.loads(self.kubectl("get", *what, "-o", "json"))["items"]
        return found

    def names(self, *what: str) -> set[str]:
        return {one["metadata"]["name"] for one in self.items(*what)}

    def wait_ready(self) -> float:
        """Wait for the rollout of servers and agents, and return its seconds."""
        started = time.monotonic()
        for what in ("deployment/umbilical-server", "daemonset/umbilical-agent"):
            self.kubectl("rollout", "status", what, f"--timeout={SECONDS:.0f}s")
        return time.monotonic() - started

    def test(self) -> None:
        told = self.helm("test", "--logs")
        assert re.search(r"^Phase: +Succeeded$", told, re.MULTILINE), told
        assert told.count(" ok, agent umbilical-agent-") == 4, told

    def pods(self, component: str) -> list[Any]:
        return self.items("pods", "-l", f"app.kubernetes.io/component={component}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    before = machine_picture()
    cluster = Cluster(tmp_path_factory.mktemp("chart") / "cluster")
    cluster.succeed("init", "--profile", "kubernetes", "--machines", "lab", "--masters", "1", "--workers", "2")
    try:
        cluster.succeed("run")
        assert cluster.succeed("load-image", str(built_archive())).count("localhost/umbilical:") == 3
        yield cluster
    finally:
        cluster.succeed("destroy", "--yes")
    assert processes_naming(cluster.folder) == []
    assert control_groups_of(cluster.folder / LAB) == []
    assert machine_picture() == before


def install(release: Release, *words: str) -> float:
    started = time.monotonic()
    told = release.helm("install", str(chart.CHART), "--create-namespace", *words)
    assert "helm test umbilical -n umbilical --logs" in told
    release.wait_ready()
    return time.monotonic() - started


def check_the_first_pods(release: Release) -> None:
    """Nothing restarted, every node has an agent, and the hook's Job has run as its account and is gone."""
    found = [*release.pods("server"), *release.pods("agent")]
    assert [one["status"]["containerStatuses"][0]["restartCount"] for one in found] == [0] * 5
    assert len({one["spec"]["nodeName"] for one in release.pods("agent")}) == 3
    assert len({one["spec"]["nodeName"] for one in release.pods("server")}) == 2
    assert release.names("secrets") >= KEPT
    assert release.names("jobs") == set()


def memory(pod: Any) -> int:
    """Return the memory (PSS, in bytes) of a pod's process, which has the pod's name as its ID."""
    option = f"--id={pod['metadata']['name']}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if entry.name.isdecimal() and option in (entry / "cmdline").read_bytes().split(b"\0"):
                lines = (entry / "smaps_rollup").read_text().splitlines()
                return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    raise AssertionError(f"no process has {option.decode()}")


def check_memory_is_within_the_requests(release: Release) -> None:
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    for component in ("server", "agent"):
        requested = int(values[component]["resources"]["requests"]["memory"].removesuffix("Mi")) * MIB
        used = [memory(pod) for pod in release.pods(component)]
        print(component, "PSS in MiB:", [f"{one / MIB:.1f}" for one in used])
        assert max(used) < requested


def start_watcher(release: Release) -> None:
    """Dial through the tunnel twice a second, as the chart's own test does: by the Service, from a pod."""
    hooks = yaml.safe_load_all(release.helm("get hooks"))
    (pod,) = [one for one in hooks if one and one["kind"] == "Pod"]
    (box,) = pod["spec"]["containers"]
    box["args"] = [
        *(word for word in box["args"] if not word.startswith("--count")),
        "--count=1000",
        "--interval=500ms",
    ]
    # Not the labels: a Service or a policy must not select it.
    pod["metadata"] = {"name": WATCHER, "namespace": pod["metadata"]["namespace"]}
    path = release.cluster.folder / "watcher.json"
    path.write_text(json.dumps(pod))
    release.kubectl("apply", "-f", str(path))
    release.kubectl("wait", f"pod/{WATCHER}", "--for=condition=Ready", "--timeout=60s")


def stop_watcher(release: Release) -> None:
    """Every dial since `start_watcher` went through."""
    rows = [line for line in release.kubectl("logs", WATCHER).splitlines() if ROW.match(line)]
    assert [row for row in rows if " ok, agent " not in row] == []
    assert len(rows) > 20
    release.kubectl("delete", "pod", WATCHER, "--wait=false", "--grace-period=1")


def renew(release: Release) -> str:
    """Run the CronJob's Job now, and return its log."""
    release.kubectl("create", "job", "renew", "--from=cronjob/umbilical-certificates")
    release.kubectl("wait", "job/renew", "--for=condition=Complete", "--timeout=60s")
    told = release.kubectl("logs", "job/renew")
    release.kubectl("delete", "job", "renew")
    return told


def certificates(release: Release) -> dict[str, str]:
    return {
        one["metadata"]["name"]: one["data"]["tls.crt"]
        for one in release.items("secrets")
        if "data" in one and one["metadata"]["name"] in KEPT
    }


def ended(release: Release) -> Callable[[], bool]:
    return lambda: not release.items("pods", "-l", "app.kubernetes.io/component in (server, agent)")


def test_a_release_lives_from_install_to_uninstall_without_a_failed_dial(cluster: Cluster) -> None:
    release = Release(cluster)
    print(f"ready after {install(release):.1f} s")
    check_the_first_pods(release)
    release.test()
    check_memory_is_within_the_requests(release)
    before = certificates(release)

    start_watcher(release)
    release.helm("upgrade", str(chart.CHART), "--set", "server.replicas=3,leases.enabled=true")
    print(f"upgraded after {release.wait_ready():.1f} s")
    assert len(release.names("leases")) == 3
    release.test()
    assert renew(release) == "umbilical-server: unchanged\numbilical-agent: unchanged\numbilical-client: unchanged\n"

    release.helm("rollback", "1")
    print(f"rolled back after {release.wait_ready():.1f} s")
    stop_watcher(release)
    release.test()
    assert certificates(release) == before

    release.helm("upgrade", str(chart.CHART), "--reuse-values", "--set", "leases.enabled=true")
    release.wait_ready()
    release.helm("uninstall")
    wait_until(ended(release), SECONDS)
    # Servers may no longer delete their leases: their rights are gone with the release.
    wait_until(lambda: not release.names("leases"), SECONDS)
    kinds = "deployments,daemonsets,replicasets,services,cronjobs,jobs,roles,rolebindings,networkpolicies,pdb"
    assert release.names(kinds) == set()
    assert release.names("secrets") == KEPT
    assert release.names("pods") == {"umbilical-test"}
    assert release.names("configmaps") == {"kube-root-ca.crt"}
    assert release.names("serviceaccounts") == {"default"}


def egress_selector(address: str) -> bytes:
    """Return the file of docs/chart.md for TCP, with another address of the Service."""
    text = (chart.REPOSITORY / "docs" / "chart.md").read_text()
    block = next(one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "tlsConfig" in one)
    return re.sub(r"https://[0-9.]+:", f"https://{address}:", block).encode()


def use_tunnel(release: Release, lab: Lab) -> None:
    """Do on the master what docs/chart.md says, and wait for the new kube-apiserver."""
    (secret,) = [one for one in release.items("secrets") if one["metadata"]["name"] == "umbilical-client"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        lab.write(MASTER, f"{KEYS}/{name}", b64decode(secret["data"][name]))
    lab.write(MASTER, EGRESS, egress_selector(CLIENTS_ADDRESS))
    pod = yaml.safe_load(lab.read(MASTER, APISERVER))
    (box,) = pod["spec"]["containers"]
    box["args"].append(f"--egress-selector-config-file={EGRESS}")
    for name, path in (("umbilical", KEYS), ("egress-selector", EGRESS)):
        box["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})
        pod["spec"]["volumes"].append({"name": name, "hostPath": {"path": path}})
    lab.write(MASTER, APISERVER, yaml.safe_dump(pod).encode(), 0o644)
    wait_until(lambda: is_ready_with_tunnel(release.cluster), SECONDS)


def is_ready_with_tunnel(cluster: Cluster) -> bool:
    words = ("get", "pods", "-n", "kube-system", "-l", "component=kube-apiserver", "-o", "json")
    done = cluster.stage("kubectl", "--", *words)
    if done.returncode != 0:
        return False
    # A mirror pod that was made just now has no conditions.
    found = [one for pod in json.loads(done.stdout)["items"] for one in pod["status"].get("conditions", ())]
    return EGRESS in done.stdout and [one["status"] for one in found if one["type"] == "Ready"] == ["True"]


def test_kube_apiserver_reaches_kubelets_through_the_chart_s_tunnel(cluster: Cluster) -> None:
    release = Release(cluster)
    # The certificates of the earlier release do not name this address.
    install(release, "--set", f"server.frontend.clusterIP={CLIENTS_ADDRESS}")
    use_tunnel(release, Lab.open(cluster.folder / LAB))
    agents = [one["metadata"]["name"] for one in release.pods("agent")]
    for agent in agents:
        assert "agent: connected server=" in release.kubectl("logs", agent)
        assert f"umbilical {__version__} " in release.kubectl("exec", agent, "--", "/usr/bin/umbilical", "version")
    used = read_tunnel_use(release.kubectl("get", "--raw", "/metrics"))
    assert used.dials >= len(agents) == 3
    assert used.failures == 0
