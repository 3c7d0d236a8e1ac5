"""The tunnel's end on the bootstrap node."""

import pytest
from tests.support.hardway_pods import document, flags

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.verify.documents import Pod

SERVER = "static-pods/bootstrap/konnectivity-server-pod.yaml"
API = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"
EGRESS = "static-pods/bootstrap/config/egress-selector-config.yaml"


@pytest.mark.parametrize("profile", Profile)
def test_both_pods_lead_to_the_same_socket_of_the_host(profile: Profile) -> None:
    server, api = (Pod(document(profile, path)["spec"]) for path in (SERVER, API))
    listening = server.flags.values["--uds-name"]
    dialled = document(profile, EGRESS)["egressSelections"][0]["connection"]["transport"]["uds"]["udsName"]
    mounts = server.mount_of(listening), api.mount_of(dialled)
    assert mounts[0] is not None
    assert mounts[1] is not None
    assert mounts[0].on_host(listening) == mounts[1].on_host(dialled)
    assert not mounts[0].is_read_only


@pytest.mark.parametrize("profile", Profile)
def test_kube_apiserver_finds_the_egress_selector_where_the_node_has_it(profile: Profile) -> None:
    api = Pod(document(profile, API)["spec"])
    path = api.flags.values["--egress-selector-config-file"]
    mount = api.mount_of(path)
    assert mount is not None
    assert mount.on_host(path) == "/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"


@pytest.mark.parametrize("profile", Profile)
def test_the_server_reads_what_the_node_makes(profile: Profile) -> None:
    pod = document(profile, SERVER)
    volumes = {one["name"]: one["hostPath"]["path"] for one in pod["spec"]["volumes"]}
    assert volumes["pki"] == "/opt/openshift/tls/konnectivity/server"
    assert flags(pod)["cluster-cert"] == ["/etc/konnectivity/tls.crt"]
    assert "annotations" not in pod["metadata"]
    assert "${" not in str(pod)
