"""Stage 10 against a real API: it waits, creates every manifest once, and hands out certificates."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.api_stock import Stock, namespace, node
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import live_site, machines_of, naps_of, seen_by, told_by
from tests.support.pivot_scene import joined

from umbilical.assets.hardway.static_pods.tunnel import AGENT_PKI
from umbilical.assets.names import AGENT_SECRET
from umbilical.assets.spec import IpAddress
from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.hardway import kube
from umbilical.hardway.errors import HardwayError, StageTimeout
from umbilical.hardway.etcd import client_url
from umbilical.hardway.site import Site
from umbilical.hardway.stages import s10_bootstrap
from umbilical.hardway.stages.s10_bootstrap import STAGE, documents, etcd_sight, no_node_sight, objects_sight

pytestmark = pytest.mark.real(*PROGRAMS)
PLACE = "bootstrap-konnectivity"


@pytest.fixture
def site(tmp_path: Path, plane: ControlPlane) -> Site:
    made = live_site(tmp_path, plane)
    machines_of(made).responders.append(joined(made))
    return made


def act(site: Site, words: str) -> None:
    (found,) = [step for step in STAGE.steps(site) if words in step.title]
    found.act()


def with_manifests(site: Site, *contents: str) -> None:
    others = {path: asset for path, asset in site.assets.items() if not path.startswith("manifests/")}
    paths = [f"manifests/{number:02}.yaml" for number in range(len(contents))]
    made = {path: Asset(path, text.encode(), 0o600) for path, text in zip(paths, contents, strict=True)}
    site.assets = {**others, **made}


def test_etcd_is_asked_on_the_bootstrap_node_itself(site: Site) -> None:
    act(site, "wait for etcd")
    (call,) = machines_of(site).calls
    assert call.startswith("run bootstrap etcdctl --cacert=/etc/kubernetes/bootstrap-secrets/")


def test_an_etcd_that_cannot_commit_is_told_with_what_is_known_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = joined(site)
    etcd.unhealthy[client_url(site.cluster.bootstrap)] = "remote error: tls: bad certificate"
    machines_of(site).responders.insert(0, etcd)
    monkeypatch.setattr(s10_bootstrap, "ETCD_SECONDS", 0.0)
    with pytest.raises(StageTimeout) as raised:
        act(site, "wait for etcd")
    assert "bad certificate" in raised.value.why
    assert raised.value.remedy.startswith("look at the serving certificate")
    assert etcd_sight().check.judge(site).outcome is Outcome.FAILED


def test_the_api_is_asked_at_the_node_and_through_the_load_balancer(site: Site) -> None:
    asked: list[object] = []
    path = site.kubeconfig(None)

    def kubeconfig(address: IpAddress | None) -> Path:
        asked.append(address)
        return path

    site.kubeconfig = kubeconfig
    act(site, "wait for kube-apiserver")
    act(site, "load balancer")
    assert asked == [site.cluster.bootstrap.address, None]


ONE, TWO = (
    f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: small}}\n" for name in ("one", "two")
)
SMALL = ("apiVersion: v1\nkind: Namespace\nmetadata: {name: small}\n", f"{ONE}---\n{TWO}")


@pytest.fixture
def small(site: Site, shelf: Stock) -> Iterator[Site]:
    with_manifests(site, *SMALL)
    yield site
    for name in ("one", "two"):
        shelf.take("ConfigMap", name, "small")
    shelf.take("Namespace", "small")


def test_every_object_is_created_once_and_what_exists_is_left_alone(small: Site, shelf: Stock) -> None:
    assert objects_sight().check.judge(small).evidence == "3 of 3 objects are missing, the first is Namespace small"
    act(small, "create the cluster's objects")
    assert told_by(small) == ["saw 3 created"]
    shelf.call(lambda client: kube.merge_patch(client, objects.CONFIG_MAP.path("small", "one"), {"data": {"a": "b"}}))
    act(small, "create the cluster's objects")
    assert told_by(small)[1:] == ["saw 3 existed"]
    kept = kube.get(small, objects.CONFIG_MAP, "one", "small")
    assert kept is not None
    assert kept["data"] == {"a": "b"}
    assert objects_sight().check.judge(small).evidence == "3 objects"


def test_what_is_no_object_is_told_with_its_file(site: Site) -> None:
    with_manifests(site, SMALL[0], "- no object\n")
    with pytest.raises(HardwayError) as raised:
        documents(site)
    assert (raised.value.code, raised.value.what) == ("UMB744", "manifests/01.yaml holds what is no object")
    assert objects_sight().check.judge(site).outcome is Outcome.FAILED


def test_documents_are_all_of_them_in_the_order_of_their_files(site: Site) -> None:
    paths = sorted(path for path in site.assets if path.startswith("manifests/"))
    names = [str(one["metadata"]["name"]) for path in paths for one in yaml.safe_load_all(site.content(path))]
    assert [one.name for one in documents(site)] == names
    assert names


def test_the_agents_get_their_certificates_once_the_node_has_made_them(site: Site, shelf: Stock) -> None:
    def make() -> None:
        for name in ("ca.crt", "tls.crt", "tls.key"):
            machines_of(site).files["bootstrap", f"{AGENT_PKI}/{name}"] = name.encode()

    shelf.put(namespace(PLACE))
    naps_of(site).plans.append(make)
    act(site, "certificates")
    assert seen_by(site) == [f"no {AGENT_PKI}/ca.crt on the bootstrap node"]
    assert kube.get(site, objects.SECRET, AGENT_SECRET, PLACE) is not None
    shelf.take("Secret", AGENT_SECRET, PLACE)


def test_without_a_tunnel_nothing_is_handed_out(site: Site) -> None:
    titles = [step.title for step in STAGE.steps(site)]
    site.has_tunnel = False
    assert [step.title for step in STAGE.steps(site)] == titles[:-1]


def test_a_bootstrap_machine_that_registered_is_found(site: Site, shelf: Stock) -> None:
    assert no_node_sight().check.judge(site).outcome is Outcome.PASSED
    name = site.cluster.bootstrap.name
    shelf.put(node(name, "192.0.2.1"))
    assert no_node_sight().check.judge(site).evidence == f"{name} is registered as a node"
