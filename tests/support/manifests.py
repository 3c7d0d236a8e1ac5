"""Small manifests for tests of those who read and run them, and values that no manifest should hold."""

import copy
from typing import Any, Final

from hypothesis import strategies as st

MINIMAL: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sample"},
    "spec": {"containers": [{"name": "main", "image": "localhost/umbilical:lab"}]},
}


def changed(document: dict[str, Any], part: str, **changes: object) -> dict[str, Any]:
    """Copy a document with other fields in one of its parts."""
    copied = copy.deepcopy(document)
    copied[part] = {**copied[part], **changes}
    return copied


def with_container(document: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Copy a document with other fields in its first container."""
    copied = copy.deepcopy(document)
    copied["spec"]["containers"][0].update(changes)
    return copied


def json_values() -> st.SearchStrategy[Any]:
    """Draw anything that a YAML file can say, with field names of pods more often than others."""
    names = st.sampled_from(
        [
            "metadata",
            "spec",
            "name",
            "containers",
            "env",
            "value",
            "volumes",
            "secret",
            "items",
            "path",
            "port",
            "command",
        ]
    )
    leaves = st.none() | st.booleans() | st.integers(-5, 70000) | st.floats(allow_nan=False) | st.text(max_size=8)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )
