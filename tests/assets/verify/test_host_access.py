"""An SCC binding for the agents' service account makes host network right; one for another does not."""

import base64
from typing import Any

import pytest
from tests.support.verify_subjects import failures, subject

from umbilical.assets.tree import yaml_bytes

NAMESPACE = "openshift-bootstrap-konnectivity"
ACCOUNT = {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}
GROUP = {"kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}


def with_binding(folder: str = "openshift", **changes: Any) -> bytes:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "x", "namespace": NAMESPACE},
        "roleRef": {"kind": "ClusterRole", "name": "system:openshift:scc:hostnetwork-v2"},
        "subjects": [ACCOUNT],
        **changes,
    }
    source = "data:;base64," + base64.b64encode(yaml_bytes(binding)).decode()
    path = f"/opt/openshift/{folder}/99_binding.yaml"
    file = {"path": path, "mode": 420, "overwrite": True, "contents": {"source": source}}
    changed = subject("patched").edited(
        "agent_daemon_set", lambda value: value["spec"]["template"]["spec"].update(hostNetwork=True)
    )
    return changed.whole(lambda value: value["storage"]["files"].append(file)).content


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"folder": "manifests"},
        {"subjects": [GROUP]},
        {"kind": "ClusterRoleBinding", "metadata": {"name": "x"}},
        {"roleRef": {"name": "system:openshift:scc:privileged"}},
    ],
)
def test_a_binding_of_the_agents_account_is_enough(changes: dict[str, Any]) -> None:
    assert not failures(with_binding(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"subjects": []},
        {"subjects": [{**ACCOUNT, "name": "other"}]},
        {"subjects": [{**ACCOUNT, "namespace": "other"}]},
        {"metadata": {"name": "x", "namespace": "other"}},
        {"roleRef": {"name": "system:openshift:scc:restricted-v2"}},
        {"kind": "ConfigMap"},
        {"folder": "elsewhere"},
    ],
)
def test_any_other_binding_is_not(changes: dict[str, Any]) -> None:
    assert failures(with_binding(**changes)) == {"C7"}
