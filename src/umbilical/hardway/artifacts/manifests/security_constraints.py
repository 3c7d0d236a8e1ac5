"""Security context constraints and the roles that let one use them, as the release has them.

The version operator would bring them too, but kube-apiservers on masters judge pods by them from their first moment.
"""

import re
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.manifests.objects import Object

FILE: Final = re.compile(
    r"(?:.*/)?0000_20_kube-apiserver-operator_00_(?:scc|cr-scc|crb-systemauthenticated-scc)-.+\.ya?ml"
)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Whoever may use a constraint is said by roles first: a binding's role has to exist.
_ORDER: Final = ("SecurityContextConstraints", "ClusterRole", "ClusterRoleBinding")


def security_constraints(inputs: Inputs) -> list[Object]:
    """Take them out of the release.

    Raises:
        RenderError: UMB715, there are none, or one cannot be read.
    """
    manifests = inputs.payload.manifests
    found = [one for name in sorted(manifests) if FILE.fullmatch(name) for one in _documents(name, manifests[name])]
    chosen = [one for one in found if crds.is_included(one)]
    if not any(one.get("kind") == _ORDER[0] for one in chosen):
        raise _unusable("no file is called like 0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml")
    return sorted(chosen, key=lambda one: (_ORDER.index(one["kind"]), one["metadata"]["name"]))


def _documents(file: str, content: bytes) -> list[Object]:
    try:
        found = list(yaml.load_all(content, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"{file} is not YAML: {str(error).splitlines()[0]}") from None
    for one in found:
        if not isinstance(one, dict) or one.get("kind") not in _ORDER or not _has_name(one):
            raise _unusable(f"{file} holds something that is neither a constraint nor a role nor a binding")
    return found


def _has_name(document: Object) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _unusable(why: str) -> RenderError:
    remedy = "extract the release again: umbilical explain 04"
    return RenderError("UMB715", "the release's security context constraints cannot be used", why, remedy)
