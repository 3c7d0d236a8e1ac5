"""The agents' namespace."""

from umbilical.assets.manifests.namespace import namespace
from umbilical.assets.spec import Shape, for_shape


def test_it_carries_the_label_without_which_nothing_is_ever_deleted() -> None:
    made = namespace(for_shape(Shape.OPENSHIFT))
    assert made["metadata"]["name"] == "openshift-bootstrap-konnectivity"
    assert made["metadata"]["labels"]["openshift.io/bootstrap-only"] == "true"


def test_it_enforces_the_strictest_level_that_the_agents_fit() -> None:
    for host_network, level in ((False, "restricted"), (True, "privileged")):
        made = namespace(for_shape(Shape.SEED, namespace="tunnel", host_network=host_network))
        labels = made["metadata"]["labels"]
        assert [labels[f"pod-security.kubernetes.io/{kind}"] for kind in ("enforce", "audit", "warn")] == [level] * 3


def test_a_default_node_selector_keeps_no_agent_away() -> None:
    assert namespace(for_shape(Shape.OPENSHIFT))["metadata"]["annotations"] == {"openshift.io/node-selector": ""}
