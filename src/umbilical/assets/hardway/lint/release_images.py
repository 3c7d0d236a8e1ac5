"""Which image a release has for a tag, by the release's own list."""

import posixpath

from umbilical.assets.hardway.lint.facts import Facts, Unreadable
from umbilical.assets.hardway.release import IMAGE_REFERENCES
from umbilical.assets.verify.documents import dig


def release_image(facts: Facts, tag: str) -> str:
    """Ask the list that lies among the inputs of the machine-config render commands.

    Raises:
        Unreadable: there is no list, or it has no such tag.
    """
    found = [path for path in sorted(facts.assets) if posixpath.basename(path) == IMAGE_REFERENCES]
    if not found:
        raise Unreadable(f"there is no {IMAGE_REFERENCES} that says which image is {tag}")
    tags = dig(facts.document(found[0]), "spec", "tags")
    for entry in tags if isinstance(tags, list) else []:
        if dig(entry, "name") == tag:
            return str(dig(entry, "from", "name"))
    raise Unreadable(f"{found[0]} has no tag {tag}")
