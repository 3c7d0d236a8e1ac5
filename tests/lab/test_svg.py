"""SVG elements are written so that any text can stand in them."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.svg import box, element, line, path, picture, text

# What XML 1.0 can hold at all; reports escape the rest before.
VISIBLE = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")))


def test_names_are_spelled_as_svg_has_them() -> None:
    assert element("path", class_="way", text_anchor="end", x=1.5) == '<path class="way" text-anchor="end" x="1.5"/>'


def test_numbers_carry_no_more_digits_than_a_screen_shows() -> None:
    assert element("g", x=1 / 3, y=2.0, z=0.0) == '<g x="0.33" y="2" z="0"/>'


@given(VISIBLE)
def test_any_words_come_back_as_they_went_in(words: str) -> None:
    drawn = ElementTree.fromstring(picture(10, 20.5, words, text(1, 2, words, "note")))
    assert drawn.get("aria-label") == words
    assert drawn.get("viewBox") == "0 0 10 20.5"
    assert (drawn[0].text or "") == words


def test_shapes_have_their_class() -> None:
    for shape in (box(0, 0, 1, 1, "host"), line(0, 0, 1, 1, "host"), path("M0 0", "host")):
        assert ElementTree.fromstring(shape).get("class") == "host"
