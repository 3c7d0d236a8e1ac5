"""What server and agent have in common as containers."""

from umbilical.assets.manifests.container import PKI_MOUNT, container
from umbilical.assets.spec import Resources, Shape, for_shape

SPEC = for_shape(Shape.OPENSHIFT, resources=Resources("70m", "80Mi"), health_port=2042)


def test_the_payloads_program_is_named_by_its_path_and_anothers_is_searched_for() -> None:
    assert container(SPEC, "a", "proxy-agent", [])["command"] == ["/usr/bin/proxy-agent"]
    assert container(SPEC.replace(image="r.example/x:1"), "a", "proxy-agent", [])["command"] == ["proxy-agent"]


def test_health_and_requests_are_the_specs() -> None:
    made = container(SPEC, "a", "proxy-agent", ["--x"])

    assert made["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 2042}
    assert made["resources"] == {"requests": {"cpu": "70m", "memory": "80Mi"}}
    assert made["args"] == ["--x"]


def test_what_one_has_beyond_the_other_is_added_and_takes_nothing_away() -> None:
    made = container(SPEC, "a", "p", [], security={"runAsUser": 0}, mounts=[{"name": "socket", "mountPath": "/s"}])

    assert made["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
    }
    assert [mount["mountPath"] for mount in made["volumeMounts"]] == ["/s", PKI_MOUNT]
