"""Terraform's language, read back by a parser of it."""

import hcl2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.firewall.terraform import quoted, terraform_text
from umbilical.assets.platforms.platform import Block, Reference


def test_blocks_nest_and_references_stay_bare() -> None:
    inner = Block("allow", (), {"ports": ["1", "2"]})
    text = terraform_text((Block("resource", ("kind", "name"), {"a": 1, "group": Reference("var.x")}, (inner,)),))
    assert text == (
        'resource "kind" "name" {\n  a     = 1\n  group = var.x\n\n  allow {\n    ports = ["1", "2"]\n  }\n}\n'
    )


def test_maps_are_written_over_lines() -> None:
    text = terraform_text((Block("data", ("k", "n"), {"tags": {"Name": "x"}}),))
    assert text == 'data "k" "n" {\n  tags = {\n    Name = "x"\n  }\n}\n'


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("${var.secret}", '"$${var.secret}"'),
        ("%{ if true }", '"%%{ if true }"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb", '"a\\nb"'),
    ],
)
def test_nothing_in_a_string_is_evaluated(text: str, literal: str) -> None:
    assert quoted(text) == literal


# This parser takes `%%{` for the begin of a directive, which Terraform does not: that one stands in the table above.
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).filter(lambda text: "%{" not in text))
def test_any_printable_string_is_one_attribute_to_a_real_parser(text: str) -> None:
    made = terraform_text((Block("variable", ("x",), {"default": text, "after": 1}),))
    parsed = hcl2.loads(made)
    [variable] = parsed["variable"]
    [body] = [value for value in variable.values() if isinstance(value, dict)]
    assert set(body) >= {"default", "after"}
    assert "resource" not in parsed
