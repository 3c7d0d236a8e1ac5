"""kube-controller-manager's pods, and what stands beside it on OpenShift."""

from tests.support.hardway_pods import document, flags

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.kube_controller_manager import policy_controller_config

BOOTSTRAP = "static-pods/bootstrap/kube-controller-manager-bootstrap.yaml"


def test_nobody_but_the_network_cuts_pieces_of_the_pod_network() -> None:
    for profile in Profile:
        assert flags(document(profile, BOOTSTRAP))["allocate-node-cidrs"] == ["false"]


def test_openshift_leaves_out_what_is_for_joining_by_token() -> None:
    told = flags(document(Profile.OPENSHIFT, BOOTSTRAP))
    assert told["controllers"] == ["*,-ttl,-bootstrapsigner,-tokencleaner"]
    assert told["cluster-signing-duration"] == ["720h"]
    assert "controllers" not in flags(document(Profile.KUBERNETES, BOOTSTRAP))


def test_it_signs_with_the_kubelet_signer_and_gives_pods_every_signer_of_the_api() -> None:
    told = flags(document(Profile.KUBERNETES, "late-static-pods/master-0/kube-controller-manager.yaml"))
    assert told["cluster-signing-cert-file"] == ["/etc/kubernetes/secrets/kubelet-signer.crt"]
    assert told["root-ca-file"] == ["/etc/kubernetes/secrets/kube-apiserver-complete-server-ca-bundle.crt"]


def test_a_certificate_directory_can_be_written_although_the_image_cannot() -> None:
    pod = document(Profile.OPENSHIFT, BOOTSTRAP)
    [directory] = flags(pod)["cert-dir"]
    mount = next(one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["mountPath"] == directory)
    assert {"name": mount["name"], "emptyDir": {}} in pod["spec"]["volumes"]


def test_openshift_has_the_controller_that_hands_out_user_ids() -> None:
    pod = document(Profile.OPENSHIFT, BOOTSTRAP)
    policy = pod["spec"]["containers"][1]
    assert policy["command"] == ["cluster-policy-controller", "start"]
    assert policy["livenessProbe"]["httpGet"]["port"] == 10357
    assert flags(pod, 1)["config"] == ["/etc/kubernetes/config/cluster-policy-controller-config.yaml"]
    assert len(document(Profile.KUBERNETES, BOOTSTRAP)["spec"]["containers"]) == 1
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(names) == len(set(names))


def test_its_config_names_files_that_its_pod_mounts() -> None:
    config = policy_controller_config()
    assert config["servingInfo"]["bindAddress"] == "0.0.0.0:10357"
    assert config["servingInfo"]["certFile"].startswith("/etc/kubernetes/secrets/")
    assert config["kubeClientConfig"]["kubeConfig"] == (
        "/etc/kubernetes/kubeconfigs/kube-controller-manager.kubeconfig"
    )
