"""The sidecars' own account, and the kubeconfig that holds no secret."""

from pathlib import Path

import yaml
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.sidecar_access import (
    KUBECONFIG_DIRECTORY,
    KUBECONFIG_KEY,
    KUBECONFIG_MAP,
    TOKEN_SECRET,
    access_notes,
    hosted_access,
    is_needed,
    kubeconfig_volume,
    management_access,
)
from umbilical.assets.hosted.spec import KubeApiserver
from umbilical.cluster import kubeconfig

AGENT_ONLY = hosted_spec(components=("cluster-network-operator",))


def test_the_account_may_get_services_and_nothing_else() -> None:
    by_kind = {one["kind"]: one for one in hosted_access(hosted_spec())}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}]
    binding = by_kind["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == by_kind["ClusterRole"]["metadata"]["name"]
    (subject,) = binding["subjects"]
    account = by_kind["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    annotations = by_kind["Secret"]["metadata"]["annotations"]
    assert annotations == {"kubernetes.io/service-account.name": account["name"]}


def test_where_no_name_is_resolved_there_is_no_account() -> None:
    assert not is_needed(AGENT_ONLY)
    assert hosted_access(AGENT_ONLY) == management_access(AGENT_ONLY) == []
    assert is_needed(hosted_spec(components=("olm-operator",)))


def test_the_token_that_has_to_be_copied_is_named_where_one_is_needed() -> None:
    (note,) = access_notes(hosted_spec())
    assert f"kube-system/{TOKEN_SECRET}" in note
    assert "copied to clusters-guest: hosted apply" in note
    assert access_notes(AGENT_ONLY) == []


def test_the_kubeconfig_is_readable_and_names_files_of_its_volume(tmp_path: Path) -> None:
    (config_map,) = management_access(hosted_spec(kube_apiserver=KubeApiserver(ports=(7443,))))
    text = config_map["data"][KUBECONFIG_KEY]
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    loaded = kubeconfig.load(path)

    assert loaded.cluster.server == "https://kube-apiserver:7443"
    assert loaded.user is not None
    assert loaded.user.token_file == f"{KUBECONFIG_DIRECTORY}/token"
    assert loaded.cluster.certificate_auth == f"{KUBECONFIG_DIRECTORY}/ca.crt"
    assert "token:" not in text
    assert yaml.safe_load(text)["kind"] == "Config"


def test_the_volume_brings_all_files_together_and_does_not_hold_the_pod_back() -> None:
    config_map, secret = (source for source in kubeconfig_volume("k")["projected"]["sources"])
    assert config_map["configMap"]["name"] == KUBECONFIG_MAP
    assert secret["secret"]["name"] == TOKEN_SECRET
    assert secret["secret"]["optional"] is True
    assert [item["path"] for item in secret["secret"]["items"]] == ["token", "ca.crt"]
