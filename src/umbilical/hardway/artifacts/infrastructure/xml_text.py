"""XML as people read it: one element per line, no declaration, which libvirt does not need."""

from xml.etree import ElementTree


def xml_bytes(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode").encode() + b"\n"
