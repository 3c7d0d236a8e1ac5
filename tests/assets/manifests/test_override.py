"""The override of kube-apiserver's bootstrap configuration."""

from umbilical.assets.manifests.override import kube_apiserver_override
from umbilical.assets.tree import yaml_bytes


def test_it_says_where_the_egress_file_is_and_nothing_else() -> None:
    assert kube_apiserver_override() == {
        "apiVersion": "kubecontrolplane.config.openshift.io/v1",
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {
            "egress-selector-config-file": ["/etc/kubernetes/config/egress-selector-config.yaml"],
        },
    }


def test_gos_template_engine_finds_nothing_to_do() -> None:
    assert b"{{" not in yaml_bytes(kube_apiserver_override())
