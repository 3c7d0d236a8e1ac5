"""kubectl on objects: wrong types and misspelt fields are found, kinds of CRDs are left alone."""

import hypothesis
import pytest
from hypothesis import strategies
from tests.support.hardway_judges import after, bench, current
from tests.support.hardway_lint import Subject

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.judges.objects import lost, object_faults


def _faults(subject: Subject) -> list[str]:
    with bench(subject) as opened:
        return object_faults(opened)


def _pod(subject: Subject) -> str:
    names = [path for path in sorted(subject.assets) if path.startswith("static-pods/bootstrap/")]
    return next(path for path in names if b"kind: Pod" in subject.assets[path].content)


@pytest.mark.real("kubectl")
@pytest.mark.parametrize("profile", list(Profile))
def test_every_object_is_decoded(profile: Profile) -> None:
    assert _faults(current(profile)) == []


@pytest.mark.real("kubectl")
def test_a_field_of_the_wrong_type_is_a_fault() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(priority="high"))

    (fault,) = _faults(after(Profile.KUBERNETES, spoil))
    assert "cannot unmarshal string" in fault
    assert fault.startswith("static-pods/bootstrap/")


@pytest.mark.real("kubectl")
def test_several_faults_are_told_one_by_one() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(priority="high"))
        path = next(path for path in subject.assets if path.startswith("manifests/") and path.endswith(".yaml"))
        subject.write(path, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: 1}\n")

    assert len(_faults(after(Profile.KUBERNETES, spoil))) == 2


@pytest.mark.real("kubectl")
def test_a_misspelt_field_is_a_fault() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(hostNetworks=True))

    (fault,) = _faults(after(Profile.KUBERNETES, spoil))
    assert fault.endswith("kubectl knows no spec.hostNetworks")


def test_where_nothing_is_there_nothing_is_shown() -> None:
    subject = current(Profile.KUBERNETES)
    subject.assets = {}
    assert _faults(subject) == ["there is nothing to decode"]


def test_empty_values_may_go() -> None:
    assert list(lost({"a": "", "b": {"c": False, "d": 1}, "e": [{"f": 2}]}, {"b": {}, "e": [{}]})) == ["b.d", "e[0].f"]


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=3),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=3), inner),
    max_leaves=12,
)


@hypothesis.given(JSON)
def test_nothing_is_lost_between_equals(value: object) -> None:
    assert list(lost(value, value)) == []
