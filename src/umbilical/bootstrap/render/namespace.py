"""The agents' own namespace: one delete removes all of the tunnel's objects."""

from typing import Any, Final

from umbilical.bootstrap.names import BOOTSTRAP_ONLY
from umbilical.bootstrap.spec import TunnelSpec

_POD_SECURITY: Final = "pod-security.kubernetes.io"


def namespace(spec: TunnelSpec) -> dict[str, Any]:
    # Host network is what Pod Security's two stricter levels forbid first of all.
    level = "privileged" if spec.host_network else "restricted"
    key, value = BOOTSTRAP_ONLY
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": spec.namespace,
            "labels": {
                key: value,
                f"{_POD_SECURITY}/enforce": level,
                f"{_POD_SECURITY}/audit": level,
                f"{_POD_SECURITY}/warn": level,
                # OpenShift's controller would write these labels anew from the SCCs that the namespace may use.
                "security.openshift.io/scc.podSecurityLabelSync": "false",
            },
            # A cluster-wide default node selector would keep agents off some nodes.
            "annotations": {"openshift.io/node-selector": ""},
        },
    }
