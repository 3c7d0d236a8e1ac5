"""The bootstrap node of a hand-built cluster boots from its own Ignition file, under the real kubelet."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.support import hardway
from tests.support.hardway_lab import PROGRAMS, built, inside, small_cluster
from tests.support.labs import wait_until

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.graph import Rendering, render
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterProfile
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.host.machine_records import Power
from umbilical.lab.hardway.machines import LabMachines

PEERS: Final = (
    *("etcd", "etcdctl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"),
)
pytestmark = [
    # The whole pipeline boots this node too, in test_hardway_machines_pipeline.py; this is its boot alone, in detail.
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.timeout(600),
    pytest.mark.real(*PROGRAMS, *PEERS, "openssl", "curl", "dpkg-query", "apt-cache"),
]
SECONDS: Final = 150.0
# As anybody outside asks: by the load balancer's address, with the cluster's authority and no other.
ASK: Final = """
import ssl, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
try:
    print(urllib.request.urlopen(sys.argv[3], timeout=20, context=context).read().decode())
except OSError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return small_cluster(masters=1, workers=1)


@pytest.fixture(scope="module")
def rendering(cluster: Cluster) -> Rendering:
    made = hardway.certificates(cluster, datetime.now(UTC))
    return render(Inputs(cluster, made, hardway.payload(ClusterProfile.KUBERNETES), hardway.identity()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boot") / "lab"


@pytest.fixture(scope="module")
def machines(place: Path, cluster: Cluster, rendering: Rendering) -> Iterator[LabMachines]:
    with built(place, cluster) as machines:
        machines.build(cluster, {asset.path: asset.content for asset in rendering.by_recipe["infrastructure"]})
        machines.install("bootstrap", rendering.tree[layout.ignition(cluster.bootstrap)].content)
        yield machines


def test_its_api_is_ready_behind_the_load_balancer(
    machines: LabMachines, cluster: Cluster, rendering: Rendering, place: Path, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(rendering.tree[layout.bundle(Bundle.SERVER_CA.value)].content)
    url = f"https://{cluster.networks.api_vip}:6443/readyz"
    wait_until(lambda: inside(place, ASK, str(authority), url).strip() == "ok", SECONDS)
    seen = {server.server: server.is_up for server in machines.balancer() if server.backend == "api"}
    assert seen[cluster.bootstrap.name] is True
    # A machine that is off is down.
    assert [seen[node.name] for node in cluster.masters] == [False] * len(cluster.masters)


def test_every_static_pod_of_it_runs(machines: LabMachines, cluster: Cluster, rendering: Rendering) -> None:
    folder = f"{layout.STATIC_PODS}/{cluster.bootstrap.id}/"
    documents = [yaml.safe_load(asset.content) for asset in rendering.tree if asset.path.startswith(folder)]
    pods = [one for one in documents if one["kind"] == "Pod"]
    wanted = {f"{pod['metadata']['name']}-{cluster.bootstrap.name}" for pod in pods}
    assert len(wanted) >= 5

    def running() -> set[str]:
        done = machines.run("bootstrap", ["curl", "-sS", "http://127.0.0.1:10255/pods"])
        items = json.loads(done.stdout or b"{}").get("items") or []
        return {one["metadata"]["name"] for one in items if one["status"]["phase"] == "Running"}

    wait_until(lambda: running() >= wanted, SECONDS)


def test_bootkube_comes_to_its_end(machines: LabMachines, place: Path) -> None:
    log = "/var/log/units/bootkube.service.log"
    wait_until(lambda: b"bootkube: done" in (machines.read("bootstrap", log) or b""), SECONDS)
    assert machines.power("bootstrap") is Power.ON
    key = machines.read("bootstrap", f"{layout.TUNNEL_PKI}/agent/tls.key")
    assert key is not None
    assert key.startswith(b"-----BEGIN")
    on_disk = place / "nodes" / "bootstrap" / layout.TUNNEL_PKI.lstrip("/") / "agent" / "tls.key"
    assert os.stat(on_disk).st_mode & 0o077 == 0


def test_a_machine_that_lost_its_power_comes_back_with_its_data(
    machines: LabMachines, cluster: Cluster, rendering: Rendering, place: Path, tmp_path: Path
) -> None:
    machines.stop("bootstrap")
    assert machines.power("bootstrap") is Power.OFF
    wait_until(lambda: not any(server.is_up for server in machines.balancer()), SECONDS)
    machines.start("bootstrap")
    test_its_api_is_ready_behind_the_load_balancer(machines, cluster, rendering, place, tmp_path)
