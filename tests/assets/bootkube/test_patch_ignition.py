"""Whatever the patch writes is judged by Ignition's own validator."""

import pytest
from tests.support.bootstrap_corpus import CORPUS, Case
from tests.support.ignition_validate import validate

from umbilical.assets.bootkube.patch import patch, undo
from umbilical.assets.spec import Shape, for_shape
from umbilical.ignition.document import Document


@pytest.mark.real("ignition-validate")
@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
@pytest.mark.parametrize("case", CORPUS, ids=str)
def test_ignition_takes_the_config_before_with_and_after_the_patch(case: Case, shape: Shape) -> None:
    original = Document(case.content())
    validate(original.content)
    patched = patch(original, for_shape(shape)).document
    validate(patched.content)
    validate(undo(patched).content)
