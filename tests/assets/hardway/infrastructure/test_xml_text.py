"""XML as people read it."""

from xml.etree.ElementTree import Element, SubElement

from umbilical.assets.hardway.infrastructure.xml_text import xml_bytes


def test_each_element_has_its_line_and_text_is_escaped() -> None:
    root = Element("a")
    SubElement(root, "b", c='"').text = "<d>"
    assert xml_bytes(root) == b'<a>\n  <b c="&quot;">&lt;d&gt;</b>\n</a>\n'
