"""What differs, as records."""

from umbilical.assets.hardway.diff.part import MAX_SHOWN, Change, Part, as_json, change_of, shortened, values


def test_a_change_follows_from_what_is_there() -> None:
    assert [change_of(None, 1), change_of(1, None), change_of(1, 2)] == [
        *(Change.CREATED, Change.REMOVED, Change.CHANGED)
    ]


def test_json_has_only_what_says_something() -> None:
    part = Part("a", Change.CHANGED, parts=(values("b", "1", "2"), Part("c", Change.REMOVED, note="n", lines=("-x",))))
    assert as_json(part) == {
        "place": "a",
        "change": "changed",
        "parts": [
            {"place": "b", "change": "changed", "old": "1", "new": "2"},
            {"place": "c", "change": "removed", "note": "n", "lines": ["-x"]},
        ],
    }


def test_long_and_dangerous_values_are_made_harmless() -> None:
    assert shortened("x" * 500) == "x" * MAX_SHOWN + "..."
    assert shortened("a\x1b[2J\n") == "a\\x1b[2J\\n"
