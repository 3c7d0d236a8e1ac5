"""docs/recipes/kubeadm.md, followed with the real kubeadm: every file and every command of the page."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.apart import apart
from tests.support.kubeadm_lab import CONTROL_PLANE, OF_THE_MACHINE, PEERS, SYSTEM, WORKER, KubeadmLab, kubeadm_lab
from tests.support.labs import control_groups_of, machine_picture, wait_until
from tests.support.recipe_pages import Section, sections

import peers
from umbilical import __version__
from umbilical.lab import objects
from umbilical.lab.netlink import Netlink
from umbilical.lab.runners import runner_of

pytestmark = [
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.real(*PEERS, *SYSTEM),
]
SECONDS: Final = 240.0
MANIFEST: Final = "/etc/kubernetes/manifests/kube-apiserver.yaml"
TARGET: Final = re.compile(r"tunnel dial=.* target=(\S+) ")
METRICS: Final = "curl --silent http://127.0.0.1:8092/metrics"


class Page:
    """The page, as somebody reads it who follows it on a node; it remembers what was not used."""

    def __init__(self, path: Path, site: KubeadmLab) -> None:
        self._sections = sections(path)
        self._site = site
        self.unused = {block for one in self._sections.values() for block in (*one.commands, *one.files.values())}

    def section(self, title: str) -> Section:
        return self._sections[title]

    def write(self, title: str) -> None:
        """Write the files of a section."""
        for name, text in self.section(title).files.items():
            self.unused.discard(text)
            version = f"kubernetesVersion: {peers.KUBERNETES_VERSION}"
            self._site.write(name, re.sub(r"kubernetesVersion: \S+", version, text))

    def run(self, title: str, number: int = 0, *, more: str = "") -> str:
        """Run one block of commands of a section; `more` ends the line of `kubeadm init`."""
        block = self.section(title).commands[number]
        self.unused.discard(block)
        script = block.replace("VERSION", __version__)
        return self._site.run(re.sub(r"(kubeadm init --config \S+)", rf"\1 {more}", script) if more else script)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[KubeadmLab]:
    with apart():
        with Netlink() as netlink:
            netlink.set_link("lo", up=True)
        before = machine_picture()
        with kubeadm_lab(tmp_path / "lab") as site:
            yield site
        assert (machine_picture(), control_groups_of(tmp_path / "lab")) == (before, [])


@pytest.mark.timeout(1500)
def test_the_page_leads_to_a_tunnel_in_new_and_existing_clusters_and_away_again(
    site: KubeadmLab, repository: Path
) -> None:
    page = Page(repository / "docs" / "recipes" / "kubeadm.md", site)
    site.give(repository / "deploy" / "helm" / "umbilical", "deploy/helm/umbilical")
    site.give_image(f"umbilical-{__version__}-amd64.oci.tar")
    site.close_kubelets()

    make_cluster(site, page)
    install_agents(page)
    check(site, page)
    renew(site, page)

    remove(site, page)
    assert calls(site) == {"webhook": False, "logs": False}

    add_to_existing(site, page)
    check(site, page)
    assert page.unused == set()


def make_cluster(site: KubeadmLab, page: Page) -> None:
    page.run("Certificates")
    page.run("The server")
    page.write("kube-apiserver")
    site.name_images(site.run("kubeadm config images list --config kubeadm.yaml"))
    told = page.run("A new cluster", more=f"--skip-phases=addon {OF_THE_MACHINE}")
    assert "initialized successfully" in told
    site.join_worker()
    service = objects.service_on(WORKER, datetime.now(UTC))
    listed = {"apiVersion": "v1", "kind": "List", "items": [*service.objects, service.webhook]}
    site.run("kubectl apply --server-side -f -", stdin=json.dumps(listed).encode())
    wait_until(lambda: site.is_ready(f"-n {objects.NAMESPACE} pod/{objects.NAME}"), SECONDS)
    assert calls(site) == {"webhook": False, "logs": False}


def install_agents(page: Page) -> None:
    page.write("The agents")
    page.run("The agents")


def check(site: KubeadmLab, page: Page) -> None:
    """Run the page's checks, call the webhook, and see all of it in the server's metrics."""
    wait_until(lambda: calls(site) == {"webhook": True, "logs": True}, SECONDS)
    before = dials(site)
    told = page.run("Check")
    assert f"umbilical {__version__}" in told
    # The ping and exec; logs may go over a connection that kube-apiserver kept.
    assert dials(site) >= before + 2
    assert dials(site) == int(told.split()[-1])
    service = site.run(f"kubectl -n {objects.NAMESPACE} get service {objects.NAME} -o jsonpath={{.spec.clusterIP}}")
    log = runner_of(site.lab).logs(site.lab, CONTROL_PLANE, "umbilical-server", "umbilical-server")
    worker = site.lab.topology.node(WORKER).address
    assert set(TARGET.findall(log)) == {f"{worker}:10250", f"{service}:{objects.SERVICE_PORT}"}


def renew(site: KubeadmLab, page: Page) -> None:
    before = expiry(site)
    page.run("Renew the certificates")
    wait_until(lambda: expiry(site) > before, SECONDS)
    wait_until(lambda: calls(site) == {"webhook": True, "logs": True}, SECONDS)


def remove(site: KubeadmLab, page: Page) -> None:
    config = yaml.safe_load(site.read("kubeadm.yaml"))
    del config["apiServer"]
    site.write("kubeadm.yaml", yaml.safe_dump(config))
    restarted(site, lambda: page.run("Remove it", 0))
    page.run("Remove it", 1)
    assert "umbilical" not in site.read(MANIFEST)
    wait_until(lambda: "umbilical" not in site.run("kubectl get pods --all-namespaces -o name"), SECONDS)
    assert not site.lab.exists(CONTROL_PLANE, "/run/umbilical/server.sock")


def add_to_existing(site: KubeadmLab, page: Page) -> None:
    """First by a patch, then by the configuration: kubeadm writes the same manifest."""
    page.run("The server")
    page.write("kube-apiserver")
    added = yaml.safe_load(site.read("kubeadm.yaml"))["apiServer"]
    page.run("An existing cluster", 0)
    page.write("One node only")
    restarted(site, lambda: page.run("One node only"))
    patched = pod(site)

    config = yaml.safe_load(site.read("kubeadm.yaml"))
    site.write("kubeadm.yaml", yaml.safe_dump({**config, "apiServer": {**config["apiServer"], **added}}))
    # The same in another order, so it starts again.
    restarted(site, lambda: page.run("An existing cluster", 1))
    assert pod(site) == patched
    install_agents(page)
    stored = site.run("kubectl -n kube-system get configmap kubeadm-config -o jsonpath={.data.ClusterConfiguration}")
    assert yaml.safe_load(stored)["apiServer"]["extraVolumes"] == added["extraVolumes"]
    # It writes the manifests from the stored configuration.
    site.run("kubeadm upgrade node phase control-plane --certificate-renewal=false --etcd-upgrade=false")
    assert pod(site) == patched


def calls(site: KubeadmLab) -> dict[str, bool]:
    """Let kube-apiserver call the webhook, twice, and a kubelet; return which could be reached."""
    judge = "kubectl create --dry-run=server --request-timeout=30s -f -"
    allowed, denied = (site.attempt(judge, stdin=json.dumps(objects.judged(one)).encode()) for one in ("allow", "deny"))
    logs = site.attempt(f"kubectl -n {objects.NAMESPACE} logs --request-timeout=30s {objects.NAME}")
    is_judged = allowed.exit_code == 0 and b"denied the request" in denied.stderr
    return {"webhook": is_judged, "logs": logs.exit_code == 0}


def dials(site: KubeadmLab) -> int:
    return int(metric(site, "konnectivity_network_proxy_server_dial_duration_seconds_count"))


def expiry(site: KubeadmLab) -> float:
    return metric(site, 'umbilical_certificate_expiry_timestamp_seconds{role="agent-listener",file="certificate"}')


def metric(site: KubeadmLab, name: str) -> float:
    (line,) = (line for line in site.run(METRICS).splitlines() if line.startswith(name))
    return float(line.split()[-1])


def pod(site: KubeadmLab) -> dict[str, Any]:
    """Return the manifest of kube-apiserver, with lists in an order of their own."""
    found: dict[str, Any] = yaml.safe_load(site.read(MANIFEST))
    (container,) = found["spec"]["containers"]
    for parent, key in ((container, "command"), (container, "volumeMounts"), (found["spec"], "volumes")):
        parent[key] = sorted(parent[key], key=str)
    return found


def restarted(site: KubeadmLab, change: Callable[[], object]) -> None:
    before = process(site)
    change()
    wait_until(lambda: process(site) not in (before, None) and is_serving(site), SECONDS)


def process(site: KubeadmLab) -> int | None:
    pods = runner_of(site.lab).pods(site.lab, CONTROL_PLANE)
    return next((one.containers[0].pid for one in pods if one.name.startswith("kube-apiserver")), None)


def is_serving(site: KubeadmLab) -> bool:
    return site.attempt("kubectl get --raw=/readyz --request-timeout=5s").exit_code == 0
