"""Whether some manifest of the config lets the agents' service account use the host's network, by an SCC."""

import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.verify.documents import dig, mappings, parse_yaml
from umbilical.bootstrap.verify.facts import BootstrapFacts

_GRANTS: Final = re.compile(r"system:openshift:scc:(hostnetwork(-v2)?|hostaccess|privileged)")
_FOLDERS: Final = ("/opt/openshift/manifests/", "/opt/openshift/openshift/")


def may_use_host_network(facts: BootstrapFacts) -> bool:
    return any(_grants(binding, facts) for binding in _bindings(facts))


def _bindings(facts: BootstrapFacts) -> Iterator[Any]:
    files = facts.config.files if facts.config else ()
    for index, content in facts.contents.items():
        is_manifest = files[index].path.startswith(_FOLDERS)
        # Only what can hold a grant is parsed: some clusters bring thousands of manifests.
        if is_manifest and isinstance(content, bytes) and b"system:openshift:scc:" in content:
            yield parse_yaml(content.decode("utf-8", "replace")).value


def _grants(binding: Any, facts: BootstrapFacts) -> bool:
    if dig(binding, "kind") not in ("RoleBinding", "ClusterRoleBinding"):
        return False
    role = dig(binding, "roleRef", "name")
    if not isinstance(role, str) or not _GRANTS.fullmatch(role):
        return False
    own = dig(binding, "metadata", "namespace")
    if dig(binding, "kind") == "RoleBinding" and own != facts.agent_namespace:
        return False
    return any(_is_agent(subject, facts) for subject in mappings(dig(binding, "subjects")))


def _is_agent(subject: dict[Any, Any], facts: BootstrapFacts) -> bool:
    account = facts.agent.spec.get("serviceAccountName", "default")
    named = {"kind": "ServiceAccount", "name": account, "namespace": facts.agent_namespace}
    group = f"system:serviceaccounts:{facts.agent_namespace}"
    return all(subject.get(key) == value for key, value in named.items()) or (
        subject.get("kind") == "Group" and subject.get("name") == group
    )
