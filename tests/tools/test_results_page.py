"""Results are written between the marks of a page, and nowhere else."""

from pathlib import Path

import pytest

import results_page

BEGIN = results_page.begin("judge")
END = results_page.END


def test_only_the_results_of_the_page_are_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = results_page.replace(page, "judge", "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert results_page.replace(once, "judge", "new") == once


@pytest.mark.parametrize("page", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"])
def test_a_page_without_both_marks_in_order_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"tools/judge\.py"):
        results_page.replace(page, "judge", "new")


@pytest.mark.parametrize("tool", ["conformance", "compatibility"])
def test_the_pages_with_results_have_their_marks(tool: str, repository: Path) -> None:
    page = (repository / "docs" / f"{tool}.md").read_text()
    assert "kept" in results_page.replace(page, tool, "kept")
