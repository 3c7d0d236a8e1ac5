"""The flags and probes of each static pod's program."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from tests.support.hardway import RELEASE_IMAGE
from tests.support.hardway_pods import document, flags, inputs, placement

from umbilical.hardway.artifacts.static_pods.kube_controller_manager import policy_controller_config
from umbilical.hardway.artifacts.static_pods.kube_proxy import kube_proxy_pod
from umbilical.hardway.artifacts.static_pods.placement import PodPlacement
from umbilical.hardway.artifacts.tunnel import KONNECTIVITY_SERVER
from umbilical.hardway.config.cluster import ClusterProfile

ETCD = "static-pods/bootstrap/etcd-bootstrap.yaml"
API_SERVER = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"
MASTER = "late-static-pods/master-1/kube-apiserver.yaml"
CONTROLLER_MANAGER = "static-pods/bootstrap/kube-controller-manager-bootstrap.yaml"
SCHEDULER = "static-pods/bootstrap/kube-scheduler-bootstrap.yaml"
PROXY = "static-pods/worker-1/kube-proxy.yaml"
VERSION_OPERATOR = "late-static-pods/bootstrap/cvo-bootstrap.yaml"
SERVER = "static-pods/bootstrap/konnectivity-server-pod.yaml"


@pytest.mark.parametrize(
    ("path", "flag", "openshift", "kubernetes"),
    [
        # The bootstrap member founds the cluster under the name that operators search.
        (ETCD, "name", "etcd-bootstrap", "etcd-bootstrap"),
        (ETCD, "initial-cluster", *["etcd-bootstrap=https://192.168.126.100:2380"] * 2),
        (ETCD, "initial-cluster-state", "new", "new"),
        (ETCD, "client-cert-auth", "true", "true"),
        (ETCD, "peer-client-cert-auth", "true", "true"),
        # etcd 3.5 would exit at these two.
        (ETCD, "feature-gates", None, "InitialCorruptCheck=true"),
        (ETCD, "max-learners", None, "3"),
        (API_SERVER, "etcd-prefix", "kubernetes.io", None),
        (API_SERVER, "anonymous-auth", "true", "true"),
        # Nobody but the network cuts pieces of the pod network.
        (CONTROLLER_MANAGER, "allocate-node-cidrs", "false", "false"),
        # What is for joining by token.
        (CONTROLLER_MANAGER, "controllers", "*,-ttl,-bootstrapsigner,-tokencleaner", None),
        (CONTROLLER_MANAGER, "cluster-signing-duration", "720h", "720h"),
        # OpenShift's schedulers share one lease in a namespace of their own.
        (SCHEDULER, "leader-elect-resource-namespace", "openshift-kube-scheduler", None),
        (SCHEDULER, "leader-elect-resource-lock", "leases", "leases"),
        (PROXY, "proxy-mode", "iptables", "nftables"),
        (PROXY, "hostname-override", "worker-1.ocp4.example.com", "worker-1.ocp4.example.com"),
        (PROXY, "kubeconfig", "/etc/kubernetes/kubeconfig", "/etc/kubernetes/kubeconfigs/kube-proxy.kubeconfig"),
    ],
)
def test_a_flag_has_its_value_by_profile(path: str, flag: str, openshift: str | None, kubernetes: str | None) -> None:
    told = [
        flags(document(profile, path)).get(flag) for profile in (ClusterProfile.OPENSHIFT, ClusterProfile.KUBERNETES)
    ]
    assert told == [None if value is None else [value] for value in (openshift, kubernetes)]


def test_a_master_joins_those_that_joined_before() -> None:
    told = flags(document(ClusterProfile.KUBERNETES, "late-static-pods/master-1/etcd.yaml"))
    assert told["initial-cluster-state"] == ["existing"]
    assert told["initial-cluster"][0].split(",") == [
        "etcd-bootstrap=https://192.168.126.100:2380",
        "master-0.ocp4.example.com=https://192.168.126.101:2380",
        "master-1.ocp4.example.com=https://192.168.126.102:2380",
    ]
    assert told["name"] == ["master-1.ocp4.example.com"]


@pytest.mark.parametrize("profile", ClusterProfile)
def test_etcd_has_strong_ciphers_and_on_openshift_its_number_of_learners_by_variable(profile: ClusterProfile) -> None:
    variables = {one["name"]: one["value"] for one in document(profile, ETCD)["spec"]["containers"][0]["env"]}
    assert variables["ETCD_CIPHER_SUITES"].count("GCM") == 4
    assert variables.get("ETCD_MAX_LEARNERS") == ("3" if profile is ClusterProfile.OPENSHIFT else None)


def test_openshifts_probe_asks_with_the_serving_pair() -> None:
    [container] = document(ClusterProfile.OPENSHIFT, ETCD)["spec"]["containers"]
    command = container["livenessProbe"]["exec"]["command"]
    assert command[0] == "etcdctl"
    assert command[-2:] == ["endpoint", "health"]
    assert "--cert=/etc/kubernetes/secrets/etcd-serving-bootstrap.crt" in command
    assert (container["livenessProbe"]["initialDelaySeconds"], container["livenessProbe"]["periodSeconds"]) == (45, 30)


def test_a_learner_is_not_killed_for_being_one() -> None:
    [container] = document(ClusterProfile.KUBERNETES, "late-static-pods/master-0/etcd.yaml")["spec"]["containers"]
    assert container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"


def test_a_master_differs_from_the_bootstrap_node_in_its_address_and_the_tunnel_alone() -> None:
    bootstrap, master = (flags(document(ClusterProfile.KUBERNETES, path)) for path in (API_SERVER, MASTER))
    assert {name for name in bootstrap if bootstrap[name] != master.get(name)} == {
        "advertise-address",
        "egress-selector-config-file",
    }
    assert master["advertise-address"] == ["192.168.126.102"]
    assert set(master) < set(bootstrap)


@pytest.mark.parametrize("profile", ClusterProfile)
def test_it_drains_before_it_ends(profile: ClusterProfile) -> None:
    pod = document(profile, API_SERVER)
    [delay] = flags(pod)["shutdown-delay-duration"]
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    expected = ("70s", 135) if profile is ClusterProfile.OPENSHIFT else ("10s", 30)
    assert (delay, grace) == expected


@pytest.mark.parametrize("profile", ClusterProfile)
def test_probes_never_ask_for_etcd_while_it_lives(profile: ClusterProfile) -> None:
    [container] = document(profile, API_SERVER)["spec"]["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez?exclude=etcd", "readiness": "/readyz"}


def test_it_signs_with_the_kubelet_signer_and_gives_pods_every_signer_of_the_api() -> None:
    told = flags(document(ClusterProfile.KUBERNETES, "late-static-pods/master-0/kube-controller-manager.yaml"))
    assert told["cluster-signing-cert-file"] == ["/etc/kubernetes/secrets/kubelet-signer.crt"]
    assert told["root-ca-file"] == ["/etc/kubernetes/secrets/kube-apiserver-complete-server-ca-bundle.crt"]


def test_a_certificate_directory_can_be_written_although_the_image_cannot() -> None:
    pod = document(ClusterProfile.OPENSHIFT, CONTROLLER_MANAGER)
    [directory] = flags(pod)["cert-dir"]
    mount = next(one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["mountPath"] == directory)
    assert {"name": mount["name"], "emptyDir": {}} in pod["spec"]["volumes"]


def test_openshift_has_the_controller_that_hands_out_user_ids() -> None:
    pod = document(ClusterProfile.OPENSHIFT, CONTROLLER_MANAGER)
    policy = pod["spec"]["containers"][1]
    assert policy["command"] == ["cluster-policy-controller", "start"]
    assert policy["livenessProbe"]["httpGet"]["port"] == 10357
    assert flags(pod, 1)["config"] == ["/etc/kubernetes/config/cluster-policy-controller-config.yaml"]
    assert len(document(ClusterProfile.KUBERNETES, CONTROLLER_MANAGER)["spec"]["containers"]) == 1
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(names) == len(set(names))


def test_its_config_names_files_that_its_pod_mounts() -> None:
    config = policy_controller_config()
    assert config["servingInfo"]["bindAddress"] == "0.0.0.0:10357"
    assert config["servingInfo"]["certFile"].startswith("/etc/kubernetes/secrets/")
    assert config["kubeClientConfig"]["kubeConfig"] == (
        "/etc/kubernetes/kubeconfigs/kube-controller-manager.kubeconfig"
    )


@pytest.mark.parametrize("profile", ClusterProfile)
def test_it_sees_its_kubeconfig_and_no_key_of_others(profile: ClusterProfile) -> None:
    pod = document(profile, SCHEDULER)
    path = "/etc/kubernetes/kubeconfigs/kube-scheduler.kubeconfig"
    assert [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]] == [path]
    assert flags(pod)["kubeconfig"] == flags(pod)["authorization-kubeconfig"] == [path]


@pytest.mark.parametrize("profile", ClusterProfile)
def test_the_lease_is_longer_than_the_tries_to_renew_it(profile: ClusterProfile) -> None:
    told = flags(document(profile, SCHEDULER))
    names = ("lease-duration", "renew-deadline", "retry-period")
    seconds = [int(told[f"leader-elect-{name}"][0].rstrip("s")) for name in names]
    assert seconds[0] > seconds[1] > seconds[2]


def test_the_kubernetes_profile_leaves_the_machines_tracking_alone() -> None:
    told = flags(document(ClusterProfile.KUBERNETES, PROXY))
    assert {value for name, [value] in told.items() if name.startswith("conntrack-")} == {"0", "0s"}


def test_openshift_shares_iptables_with_its_host() -> None:
    spec = document(ClusterProfile.OPENSHIFT, PROXY)["spec"]
    volumes = {one["name"]: one["hostPath"] for one in spec["volumes"]}
    assert volumes["xtables-lock"] == {"path": "/run/xtables.lock", "type": "FileOrCreate"}
    [container] = spec["containers"]
    mounts = {one["name"]: one["readOnly"] for one in container["volumeMounts"]}
    assert mounts == {"kubeconfig": True, "xtables-lock": False, "lib-modules": True}
    assert container["command"] == ["/usr/bin/kube-proxy"]
    assert container["image"] == placement(ClusterProfile.OPENSHIFT).inputs.payload.images["kube-proxy"]


def test_an_ipv6_address_is_bracketed() -> None:
    given = inputs(ClusterProfile.KUBERNETES)
    node = replace(given.cluster.workers[0], address=ip_address("fd00::10"))
    assert flags(kube_proxy_pod(PodPlacement(given, node)))["healthz-bind-address"] == ["[::]:10256"]


def test_the_version_operator_is_the_release_that_it_installs_and_knows_its_profile_and_the_local_api() -> None:
    pod = document(ClusterProfile.OPENSHIFT, VERSION_OPERATOR)
    [container] = pod["spec"]["containers"]
    assert container["image"] == RELEASE_IMAGE
    assert "command" not in container
    assert container["args"] == [
        "start",
        f"--release-image={RELEASE_IMAGE}",
        "--enable-auto-update=false",
        "--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig",
        "--listen=",
        "--v=2",
    ]
    assert container["securityContext"] == {"privileged": True}
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "NODE_NAME": "bootstrap",
        "CLUSTER_PROFILE": "self-managed-high-availability",
    }
    assert pod["metadata"]["labels"]["k8s-app"] == "cluster-version-operator"
    assert pod["metadata"]["namespace"] == "openshift-cluster-version"


@pytest.mark.parametrize("profile", ClusterProfile)
def test_the_server_reads_what_the_node_makes(profile: ClusterProfile) -> None:
    pod = document(profile, SERVER)
    volumes = {one["name"]: one["hostPath"]["path"] for one in pod["spec"]["volumes"]}
    assert volumes["pki"] == "/opt/openshift/tls/konnectivity/server"
    assert flags(pod)["cluster-cert"] == ["/etc/konnectivity/tls.crt"]
    assert "annotations" not in pod["metadata"]
    assert "${" not in str(pod)


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_flag_of_the_pod_is_told_about(profile: ClusterProfile) -> None:
    args = document(profile, SERVER)["spec"]["containers"][0]["args"]
    assert list(KONNECTIVITY_SERVER.command_line(placement(profile))) == args
