"""Records: a dataclass's meaning without the code that a dataclass writes."""

from collections.abc import Callable

import pytest

from umbilical.record import Record


def _twice(number: int) -> int:
    return 2 * number


class Place(Record):
    host: str
    port: int = 80


class NamedPlace(Place):
    name: str = ""
    double: Callable[[int], int] = _twice


def test_fields_are_given_in_order_or_by_name() -> None:
    assert Place("a", 1) == Place(port=1, host="a") == Place("a", port=1)
    assert Place("a").port == 80


def test_an_heir_has_the_fields_of_its_base_first() -> None:
    assert NamedPlace("a", 1, "b").name == "b"


def test_a_function_as_a_default_stays_a_function() -> None:
    assert NamedPlace("a").double(4) == 8


@pytest.mark.parametrize("arguments", [(), ("a", 1, 2)], ids=["missing", "too many"])
def test_a_wrong_number_of_values_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="Place"):
        Place(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", [{"host": "b"}, {"hots": "b"}], ids=["twice", "unknown"])
def test_a_wrong_name_is_refused(named: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="each once"):
        Place("a", **named)  # type: ignore[arg-type]


def test_a_record_never_changes() -> None:
    place = Place("a")
    with pytest.raises(AttributeError, match="frozen"):
        place.port = 1  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del place.host
    assert place == Place("a")


def test_records_are_told_apart_by_kind_and_value() -> None:
    assert Place("a") != Place("b")
    assert Place("a") != NamedPlace("a")
    assert {Place("a"), Place("a", 80), Place("b")} == {Place("b"), Place("a")}


def test_a_record_shows_itself_as_it_is_written() -> None:
    assert repr(Place("a")) == "Place(host='a', port=80)"
