"""X1 to X4: the profile, what half a patch leaves, what agents may ask for, and which programs there are."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import NAMES, Subject, failures, findings, subject, warnings

from umbilical.assets.bootkube.profile import Profile
from umbilical.assets.names import OWN
from umbilical.assets.verify.extras import EXTRAS
from umbilical.checks.check import Outcome

CONTENTS = {
    Profile.NONE: bootstrap_config("4.18"),
    Profile.NATIVE_OFF: bootstrap_config("5.1", native="off"),
    Profile.NATIVE_ON: subject("native").content,
    Profile.PATCHED: subject("patched").content,
}


def pod(value: Any) -> Any:
    return value["spec"]["template"]["spec"]


def container(value: Any) -> Any:
    return pod(value)["containers"][0]


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in EXTRAS] == ["X1", "X2", "X3", "X4"]


@pytest.mark.parametrize("found", Profile)
@pytest.mark.parametrize("expected", Profile)
def test_another_profile_than_the_one_asked_for_fails(found: Profile, expected: Profile) -> None:
    assert failures(CONTENTS[found], profile=expected) == (set() if found is expected else {"X1"})


def test_without_an_expectation_the_profile_is_only_told() -> None:
    finding = findings(CONTENTS[Profile.NATIVE_OFF])["X1"]
    assert finding.outcome is Outcome.SKIPPED
    assert "native-off" in finding.evidence


def test_a_file_of_ours_in_an_unpatched_config_fails() -> None:
    file = {"path": OWN.egress, "mode": 384, "overwrite": True, "contents": {"source": "data:,x"}}
    plain = Subject(CONTENTS[Profile.NONE])
    assert failures(plain.whole(lambda value: value["storage"]["files"].append(file)).content) == {"X2"}


@pytest.mark.parametrize("call", [OWN.setup_function, OWN.cleanup_function, f"source {OWN.library}"])
def test_a_call_of_ours_in_an_unpatched_config_fails(call: str) -> None:
    plain = Subject(CONTENTS[Profile.NONE])
    text = plain.text("bootkube")
    assert failures(plain.with_text("bootkube", f"{text}{call}\n").content) == {"X2"}
    assert not failures(plain.with_text("bootkube", f"{text}# {call}\n").content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        lambda value: pod(value).update(hostPID=True),
        lambda value: pod(value).update(hostIPC=True),
        lambda value: pod(value)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        lambda value: container(value).setdefault("securityContext", {}).update(privileged=True),
        lambda value: container(value).setdefault("securityContext", {}).update(allowPrivilegeEscalation=True),
        lambda value: container(value).setdefault("securityContext", {}).update(runAsUser=0),
        lambda value: container(value).setdefault("securityContext", {}).update(capabilities={"add": ["NET_ADMIN"]}),
    ],
)
def test_agents_that_ask_for_privileges_fail(name: str, change: Callable[[Any], None]) -> None:
    assert failures(subject(name).edited("agent_daemon_set", change).content) == {"X3"}


@pytest.mark.parametrize("name", ["patched", "seed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: pod(value)["securityContext"].pop("runAsNonRoot"),
        lambda value: pod(value)["securityContext"].pop("seccompProfile"),
        lambda value: container(value)["securityContext"].pop("allowPrivilegeEscalation"),
        lambda value: container(value)["securityContext"].update(capabilities={"drop": []}),
        lambda value: container(value).pop("securityContext"),
    ],
)
def test_our_agents_must_say_that_they_are_restricted(name: str, change: Callable[[Any], None]) -> None:
    assert failures(subject(name).edited("agent_daemon_set", change).content) == {"X3"}


@pytest.mark.parametrize("field", ["runAsUser", "runAsGroup", "fsGroup"])
def test_agents_that_choose_their_user_where_an_scc_does_fail(field: str) -> None:
    changed = subject("patched").edited(
        "agent_daemon_set", lambda value: pod(value)["securityContext"].update({field: 7})
    )
    assert failures(changed.content) == {"X3"}


@pytest.mark.parametrize("program", ["python3 -c x", "perl", "/usr/bin/yq .", "timeout 5 kubectl get", "x=$(dig a)"])
def test_a_program_that_rhcos_lacks_fails(program: str) -> None:
    patched = subject("patched")
    text = patched.text("certificate_script")
    assert failures(patched.with_text("certificate_script", f"{text}{program}\n").content) == {"X4"}
    assert not failures(patched.with_text("certificate_script", f"{text}# {program}\n").content)


def test_a_program_that_nobody_knows_warns() -> None:
    patched = subject("patched")
    changed = patched.with_text("library", patched.text("library") + "frobnicate\n").content
    assert (failures(changed), warnings(changed)) == (set(), {"X4"})
