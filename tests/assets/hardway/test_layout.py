"""Where things lie: a path for each, and none for two."""

from tests.support.hardway import cluster

from umbilical.assets.hardway import layout


def test_paths_are_made_of_what_they_are_for() -> None:
    node = cluster().masters[0]
    assert layout.static_pod(node, "etcd.yaml") == "static-pods/master-0/etcd.yaml"
    assert layout.late_static_pod(node, "etcd.yaml") == "late-static-pods/master-0/etcd.yaml"
    assert layout.ignition(node) == "ignition/master-0.ign"
    assert layout.kubeconfig("admin") == "auth/admin.kubeconfig"
    assert layout.certificate("root-ca") == "tls/root-ca.crt"
    assert layout.key("root-ca") == "tls/root-ca.key"
    assert layout.bundle("etcd-ca-bundle") == "tls/bundles/etcd-ca-bundle.crt"


def test_no_two_places_are_one_and_places_on_nodes_are_absolute() -> None:
    places = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)]
    assert len(places) == len(set(places))
    on_nodes = [
        value for name, value in vars(layout).items() if name.startswith(("NODE_", "POD_S", "POD_C", "MASTER_"))
    ]
    assert on_nodes
    assert all(place.startswith("/") for place in on_nodes)


def test_what_waits_is_not_where_the_kubelet_looks() -> None:
    assert not layout.NODE_LATE_MANIFESTS.startswith(f"{layout.NODE_MANIFESTS}/")
