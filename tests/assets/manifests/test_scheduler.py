"""kube-scheduler's static pod."""

from tests.support.control_plane_specs import control_plane_spec

from umbilical.assets.manifests.scheduler import KUBECONFIG, scheduler_pod


def test_it_needs_its_kubeconfig_and_no_key_beside_it() -> None:
    pod = scheduler_pod(control_plane_spec())
    assert [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]] == [KUBECONFIG]
    assert f"--kubeconfig={KUBECONFIG}" in pod["spec"]["containers"][0]["args"]


def test_it_is_probed_where_it_listens() -> None:
    container = scheduler_pod(control_plane_spec())["spec"]["containers"][0]
    assert f"--secure-port={container['livenessProbe']['httpGet']['port']}" in container["args"]
