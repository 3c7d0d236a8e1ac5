"""A cast is written down and read again."""

import json

import pytest

from umbilical.assets.spec import Shape
from umbilical.lab.cast import UPSTREAM, Cast


@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
def test_a_cast_survives_being_written_down(shape: Shape) -> None:
    cast = Cast(shape, server_image=UPSTREAM, is_stand_in=True)
    assert Cast.from_json(json.loads(json.dumps(cast.to_json()))) == cast
