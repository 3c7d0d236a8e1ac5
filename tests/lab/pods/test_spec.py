"""Values of a pod that are looked up by name."""

from umbilical.lab.pods.spec import Container, Pod


def test_a_pod_is_called_by_namespace_and_name() -> None:
    assert (
        Pod("konnectivity-server", "kube-system", "uid", (Container("a", "i"),)).title
        == "kube-system/konnectivity-server"
    )
