"""CoreDNS of the kubernetes profile."""

from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.manifests.coredns import coredns
from umbilical.assets.objects import Object


def made(**sizes: int) -> dict[str, Object]:
    return {one["kind"]: one for one in coredns(hardway.inputs(Profile.KUBERNETES, **sizes))}


def test_it_answers_at_the_address_that_kubelets_give_to_pods() -> None:
    service = made()["Service"]
    assert service["spec"]["clusterIP"] == "172.30.0.10"
    assert {(port["port"], port["protocol"]) for port in service["spec"]["ports"]} >= {(53, "UDP"), (53, "TCP")}
    assert service["spec"]["selector"] == made()["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_it_runs_on_masters_before_workers_exist() -> None:
    pod = made()["Deployment"]["spec"]["template"]["spec"]
    tolerated = {one["key"] for one in pod["tolerations"]}
    assert {"node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready"} <= tolerated
    assert pod["containers"][0]["image"] == "localhost/coredns:lab"
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_there_are_no_more_of_it_than_nodes() -> None:
    assert made(masters=1, workers=0)["Deployment"]["spec"]["replicas"] == 1
    assert made(masters=1, workers=1)["Deployment"]["spec"]["replicas"] == 2
    assert made()["Deployment"]["spec"]["replicas"] == 2


def test_other_names_are_asked_of_the_machines_resolver() -> None:
    corefile = made()["ConfigMap"]["data"]["Corefile"]
    assert "forward . 192.168.126.1 {" in corefile
    assert corefile.count("{") == corefile.count("}")


def test_its_account_may_watch_what_it_serves() -> None:
    rules = made()["ClusterRole"]["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} >= {
        "services",
        "endpointslices",
        "namespaces",
    }
    subject = made()["ClusterRoleBinding"]["subjects"][0]
    account = made()["ServiceAccount"]["metadata"]
    assert (subject["namespace"], subject["name"]) == (account["namespace"], account["name"])
