"""What the kube-apiserver operator merges into the bootstrap configuration: where the egress file is, no more.

The operator runs the file through Go's text/template first, so two opening braces must never stand in it.
"""

import posixpath
from typing import Any, Final

from umbilical.bootstrap.names import EGRESS_FILE
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_IN_POD

EGRESS_FLAG: Final = "egress-selector-config-file"
EGRESS_IN_POD: Final = posixpath.join(BOOTSTRAP_CONFIGS_IN_POD, EGRESS_FILE)


def kube_apiserver_override() -> dict[str, Any]:
    return {
        "apiVersion": "kubecontrolplane.config.openshift.io/v1",
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {EGRESS_FLAG: [EGRESS_IN_POD]},
    }
