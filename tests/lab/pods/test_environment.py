"""Variables and their expansion, as the kubelet does both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.environment import expand, expand_all, pod_field
from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.spec import Container, Pod

POD = Pod("p", "ns", "uid", (Container("c", "i"),), labels={"app": "x", "b": "y"}, annotations={"a.b/c": "d"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--host=$(HOST)", "--host=10.0.0.1"),
        ("$(HOST)$(HOST)", "10.0.0.110.0.0.1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(HOST)", "$(HOST)"),
        ("$$$(HOST)", "$10.0.0.1"),
        ("cost: 5$", "cost: 5$"),
        ("$HOST", "$HOST"),
        ("$(HOST", "$(HOST"),
        ("$()", "$()"),
    ],
)
def test_references_are_replaced_where_they_are_known(text: str, expected: str) -> None:
    assert expand(text, {"HOST": "10.0.0.1"}) == expected


@given(st.text(alphabet="$()AB x", max_size=30))
def test_text_without_dollars_is_never_touched(text: str) -> None:
    plain = text.replace("$", "")
    assert expand_all([plain], {"A": "z"}) == (plain,)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "uid"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a.b/c']", "d"),
        ("metadata.labels", 'app="x"\nb="y"'),
        ("spec.nodeName", "node"),
        ("spec.serviceAccountName", "default"),
        ("status.hostIP", "10.91.0.10"),
        ("status.podIP", "10.92.0.2"),
        ("status.podIPs", "10.92.0.2,fd92::2"),
    ],
)
def test_a_pod_can_be_told_of_itself(path: str, expected: str) -> None:
    assert pod_field(POD, path, "node", "10.91.0.10", ("10.92.0.2", "fd92::2")) == expected


def test_a_field_that_nobody_has_is_refused() -> None:
    with pytest.raises(PodError, match="UMB831"):
        pod_field(POD, "spec.secret", "node", "10.91.0.10", ())
