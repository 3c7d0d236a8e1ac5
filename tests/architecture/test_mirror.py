"""Tests mirror the packages: those of `src/umbilical/a/b/` are in `tests/a/b/`, one file for each subject."""

from typing import Final

from tests.architecture.rooms import PACKAGE, TESTS, modules

# Folders of tests without a package: they test several packages together, or support other tests.
CROSSING: Final = frozenset({"architecture", "interop", "fuzz", "tools", "soak", "chaos", "simulation", "support"})


def test_a_package_with_code_has_tests_in_the_folder_of_its_name() -> None:
    packages = {module.relative.parent for module in modules() if module.has_code()}
    assert sorted(str(package) for package in packages if not any((TESTS / package).glob("test_*.py"))) == []


def test_a_folder_of_tests_has_the_name_of_a_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    named = [folder for folder in folders if folder.parts and folder.parts[0] not in CROSSING]
    assert sorted(str(folder) for folder in named if not (PACKAGE / folder / "__init__.py").is_file()) == []
