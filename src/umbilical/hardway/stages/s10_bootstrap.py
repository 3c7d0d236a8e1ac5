"""Stages 09 and 10: boot the bootstrap machine, wait for its control plane, and create the first objects."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import yaml

from umbilical.cluster import objects
from umbilical.cluster.apply import CreateResult, Creator, ManifestDocument, read_document
from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import Discovery
from umbilical.fault import HardwayError
from umbilical.hardway import kube, operators, temporary
from umbilical.hardway.artifacts import layout
from umbilical.hardway.etcd import Etcd, client_url
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.machines.interface import PORTS, is_listening
from umbilical.hardway.pivot_conditions import CONTROLLERS
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, wait_for
from umbilical.hardway.stages.live import PassingStage, install_step, installed_condition
from umbilical.hardway.waiting import KnownFailure, wait
from umbilical.host.waiting import NotYet

_INSTALL_TOPIC: Final = stage_topic(
    9,
    "Installs the operating system with bootstrap.ign on the bootstrap machine and boots it. A virtual machine has its "
    "config in its own live image, so nothing serves it over HTTP. Masters follow when its API is healthy (stage 11), "
    "workers after the pivot (stage 14): a node that boots earlier only waits.",
    "Ignition, once, at the first boot.",
    "Without a bootstrap node there is no API with which masters can register.",
    "umbilical stage shell bootstrap -- cat /etc/.ignition-result.json",
    "The installer uploads bootstrap.ign to cloud storage, from which the machine fetches it; on bare metal it starts "
    "a virtual machine with it.",
)


INSTALL: Final = PassingStage(
    9,
    "install",
    "boot the bootstrap machine",
    (2, 8),
    _INSTALL_TOPIC,
    lambda site: [install_step(site, site.cluster.bootstrap)],
    lambda site: [installed_condition(site.cluster.bootstrap)],
    nodes=lambda site: (site.cluster.bootstrap,),
)


ETCD_SECONDS: Final = 300.0
API_SECONDS: Final = 600.0
OBJECTS_SECONDS: Final = 3600.0
"""The same timeout as cluster-bootstrap."""
CERTIFICATES_SECONDS: Final = 300.0
CONTROLLERS_SECONDS: Final = 300.0
VERSION_SECONDS: Final = 1200.0
"""bootkube.sh starts the version operator when its objects exist, and the release image is pulled then."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TOPIC: Final = stage_topic(
    10,
    "Waits for the bootstrap node's static pods (etcd, API server, controller manager, scheduler), then creates every "
    "manifest in order: namespaces, CRDs, RBAC, FeatureGate, configuration with its status, Secrets and hand-off "
    "objects. In OpenShift the fifth static pod, the cluster-version operator, starts then.",
    "Masters, which register with this API; operators, which read their signers, configuration and feature gates.",
    "Without CRDs or FeatureGate the cluster-version operator restarts forever. Without the status of Infrastructure: "
    "`ControlPlaneTopology was not set`.",
    "kubectl --kubeconfig auth/admin.kubeconfig get --raw /readyz; etcdctl endpoint health",
    "bootkube.sh runs cluster-bootstrap, which does the same in a loop on the node.",
)
_FAILURES: Final = (
    KnownFailure("refused", "nothing listens on the port yet: umbilical stage logs bootstrap lists what has started"),
    KnownFailure(
        "certificate", "check the serving certificate: openssl s_client -connect BOOTSTRAP:6443 | openssl x509 -text"
    ),
    KnownFailure(
        "bad certificate|incompatible key usage",
        "etcd's serving certificate needs clientAuth too: umbilical stage lint --only PKI-01",
    ),
    KnownFailure("No route|unreachable", "the machine did not get its address: check its NetworkManager keyfile"),
)


def etcd_condition() -> Condition:
    def probe(site: Site) -> str:
        bootstrap = site.cluster.bootstrap
        etcd = Etcd(site.machines, bootstrap, in_container=site.cluster.is_openshift)
        if trouble := etcd.unhealthy([client_url(bootstrap)]):
            raise NotYet("; ".join(trouble.values()))
        return "healthy"

    why = "kube-apiserver stores all data in it"
    fix = "umbilical stage logs bootstrap etcd"
    return Condition("bootstrap-etcd", "etcd on the bootstrap node is healthy", why, fix, probe, _FAILURES)


def api_condition() -> Condition:
    return Condition(
        "bootstrap-api",
        "kube-apiserver on the bootstrap node is ready",
        "nodes register and objects are created through it",
        "umbilical stage logs bootstrap kube-apiserver",
        lambda site: kube.ready_text(site, site.cluster.bootstrap.address),
        _FAILURES,
    )


def balancer_condition() -> Condition:
    why = "nodes reach the API only by this address"
    fix = "on the load balancer: check its statistics, the VIP with `ip address`, and the firewall"
    return Condition("api-vip", "the API answers through the load balancer", why, fix, kube.ready_text, _FAILURES)


def documents(site: Site) -> list[ManifestDocument]:
    """Read all objects of the manifests, in the order of the files."""
    found = []
    for path in sorted(path for path in site.assets if path.startswith(f"{layout.MANIFESTS}/")):
        for content in yaml.load_all(site.content(path), _Loader):
            document = read_document(content)
            if document is None:
                remedy = f"correct artifacts/{path}; umbilical stage lint"
                raise HardwayError(
                    "UMB744", f"{path} contains an invalid object", "it has no apiVersion, kind or name", remedy
                )
            found.append(document)
    return found


def controllers_condition() -> Condition:
    """By their ports: the bootstrap node is not registered, so the API has no pods of it."""

    def probe(site: Site) -> str:
        node = site.cluster.bootstrap.id
        silent = [f"{name} (port {PORTS[name]})" for name in CONTROLLERS if not is_listening(site.machines, node, name)]
        if silent:
            raise NotYet(f"{', '.join(silent)} does not listen")
        return ", ".join(CONTROLLERS)

    title = "controller manager and scheduler run on the bootstrap node"
    why = "without them no certificate is signed, no pod is created and none gets a node"
    fix = "umbilical stage logs bootstrap kube-controller-manager; umbilical stage logs bootstrap kube-scheduler"
    return Condition("bootstrap-controllers", title, why, fix, probe)


def objects_condition() -> Condition:
    def probe(site: Site) -> str:
        wanted = documents(site)
        missing = site.api().call(lambda client: _missing(client, wanted))
        if missing:
            raise NotYet(f"{len(missing)} of {len(wanted)} objects are missing, the first is {missing[0]}")
        return f"{len(wanted)} objects"

    why = "components of the cluster fail without them: umbilical explain FILE"
    fix = "umbilical stage retry 10"
    return Condition("bootstrap-objects", "every object of the manifests exists", why, fix, probe)


def no_node_condition() -> Condition:
    def probe(site: Site) -> str:
        if site.cluster.bootstrap.name in kube.nodes(site):
            raise NotYet(f"{site.cluster.bootstrap.name} is registered as a node")
        return "not registered as a node"

    why = "as a node it would get pods, which are lost when the pivot removes it"
    fix = "remove --kubeconfig and --bootstrap-kubeconfig from its kubelet.service: umbilical stage lint --only BK-01"
    return Condition("bootstrap-is-no-node", "the bootstrap machine is not a node of the cluster", why, fix, probe)


async def _missing(client: ApiClient, wanted: Sequence[ManifestDocument]) -> list[str]:
    discovery, found = Discovery(client), []
    for document in wanted:
        kind = await discovery.find(document.api_version, document.kind)
        if kind is None or await objects.get_metadata(client, kind, document.name, document.namespace) is None:
            found.append(str(document))
    return found


def _create(site: Site) -> None:
    counts: Counter[str] = Counter()

    def told(result: CreateResult) -> None:
        counts[result.outcome.value] += 1
        counts["status written"] += result.wrote_status

    wanted = documents(site)
    site.api().call(lambda client: Creator(client, told).create(wanted, OBJECTS_SECONDS), OBJECTS_SECONDS + 60)
    site.reporter.saw(", ".join(f"{count} {what}" for what, count in counts.items() if count))


def _hand_out(site: Site) -> None:
    wait(
        site.reporter,
        "the tunnel's certificates on the bootstrap node",
        lambda: temporary.hand_out_certificates(site),
        CERTIFICATES_SECONDS,
        remedy="umbilical stage logs bootstrap bootkube",
        sleep=site.sleep,
    )


def _steps(site: Site) -> Sequence[Step]:
    boot = site.cluster.bootstrap
    steps = [
        Step(
            "wait for etcd",
            f"etcdctl --endpoints={client_url(boot)} endpoint health",
            lambda: wait_for(site, ETCD_SECONDS, etcd_condition()),
        ),
        Step(
            "wait for kube-apiserver",
            f"kubectl --server=https://{boot.address}:6443 get --raw /readyz",
            lambda: wait_for(site, API_SECONDS, api_condition()),
        ),
        Step(
            "wait for the API behind the load balancer",
            "kubectl get --raw /readyz",
            lambda: wait_for(site, API_SECONDS, balancer_condition()),
        ),
        Step(
            "wait for controller manager and scheduler",
            "ss -ltn 'sport = :10257 or sport = :10259'   # on the bootstrap node",
            lambda: wait_for(site, CONTROLLERS_SECONDS, controllers_condition()),
        ),
        Step("create the cluster's objects", "kubectl create -f manifests/ --save-config=false", lambda: _create(site)),
    ]
    if site.cluster.is_openshift:
        steps.append(
            Step(
                "wait for the cluster-version operator",
                "oc describe clusterversion version",
                lambda: wait_for(site, VERSION_SECONDS, operators.started_condition()),
            )
        )
    if site.has_tunnel:
        secret = "kubectl create secret generic konnectivity-agent-certs --from-file=..."
        steps.append(Step("create the Secret with the agents' certificates", secret, lambda: _hand_out(site)))
    return steps


def _conditions(site: Site) -> Sequence[Condition]:
    found = [etcd_condition(), api_condition(), balancer_condition(), controllers_condition(), objects_condition()]
    return [*found, *([operators.started_condition()] if site.cluster.is_openshift else []), no_node_condition()]


STAGE: Final = PassingStage(
    10,
    "bootstrap",
    "start the bootstrap control plane and create the cluster's objects",
    (7, 9),
    TOPIC,
    _steps,
    _conditions,
    recipes=("manifests",),
)
