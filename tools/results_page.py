"""Puts the results of a tool between two marks of a page, so that the text around them stays as it was written."""

from typing import Final

END: Final = "<!-- end of results -->"


def begin(tool: str) -> str:
    return f"<!-- results: written by tools/{tool}.py -->"


def replace(page: str, tool: str, results: str) -> str:
    """Return the page with other results. Raises ValueError: it has not each mark once, in this order."""
    head, start, rest = page.partition(f"{begin(tool)}\n")
    _, end, tail = rest.partition(END)
    if not start or not end or begin(tool) in rest or END in head + tail:
        raise ValueError(f"the page must have the lines {begin(tool)} and {END}, once each and in this order")
    return f"{head}{start}\n{results}\n\n{END}{tail}"
