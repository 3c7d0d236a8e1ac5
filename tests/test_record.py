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


def test_fields_are_given_in_order_or_by_name_also_to_an_heir() -> None:
    assert Place("a", 1) == Place(port=1, host="a") == Place("a", port=1)
    assert Place("a").port == 80
    assert NamedPlace("a", 1, "b").name == "b"
    assert NamedPlace("a").double(4) == 8


def test_wrong_values_and_names_are_refused() -> None:
    for arguments in ((), ("a", 1, 2)):
        with pytest.raises(TypeError, match="Place"):
            Place(*arguments)
    for named in ({"host": "b"}, {"hots": "b"}):
        with pytest.raises(TypeError, match="each once"):
            Place("a", **named)  # type: ignore[arg-type]


def test_a_record_never_changes() -> None:
    place = Place("a")
    with pytest.raises(AttributeError, match="frozen"):
        place.port = 1  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del place.host
    assert place == Place("a")


def test_records_differ_by_kind_and_value() -> None:
    assert Place("a") != Place("b")
    assert Place("a") != NamedPlace("a")
    assert {Place("a"), Place("a", 80), Place("b")} == {Place("b"), Place("a")}


def test_a_record_shows_itself_as_it_is_written() -> None:
    assert repr(Place("a")) == "Place(host='a', port=80)"
