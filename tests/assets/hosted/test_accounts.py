"""Who agents and servers are to the two APIs."""

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.accounts import hosted_accounts, management_accounts, namespace_labels
from umbilical.assets.hosted.spec import Agents, Leases, ServerCount

LEASES = hosted_spec(server_count=ServerCount.LEASES, leases=Leases("secret", "somebody"))


def test_accounts_have_no_token_of_their_own() -> None:
    found = [*management_accounts(hosted_spec()), *hosted_accounts(hosted_spec())]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in found] == [
        ("ServiceAccount", "clusters-guest"),
        ("ServiceAccount", "kube-system"),
    ]
    assert all(one["automountServiceAccountToken"] is False for one in found)


def test_no_agent_beside_the_control_plane_has_no_account() -> None:
    assert management_accounts(hosted_spec(aggregated_apis=())) == []


def test_rights_are_to_leases_and_nothing_else_and_only_where_leases_are_counted() -> None:
    assert [one["kind"] for one in hosted_accounts(hosted_spec())] == ["ServiceAccount"]
    found = hosted_accounts(LEASES)
    rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "Role"}
    assert {name: (rule[0]["resources"], rule[0]["verbs"]) for name, rule in rules.items()} == {
        "konnectivity-server-leases": (["leases"], ["get", "create", "update", "list", "delete"]),
        "konnectivity-agent-leases": (["leases"], ["get", "list", "watch"]),
    }


def test_rights_are_given_to_the_named_user_and_to_agents() -> None:
    subjects = [one["subjects"][0] for one in hosted_accounts(LEASES) if one["kind"] == "RoleBinding"]
    assert [(one["kind"], one["name"]) for one in subjects] == [
        ("User", "somebody"),
        ("ServiceAccount", "konnectivity-agent"),
    ]


def test_pods_on_the_hosts_network_are_let_into_the_namespace() -> None:
    labels = namespace_labels(hosted_spec())[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["security.openshift.io/scc.podSecurityLabelSync"] == "false"
    assert namespace_labels(hosted_spec(agents=Agents(host_network=False))) == []
