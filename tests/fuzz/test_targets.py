"""Every target of the fuzzer on the committed corpus, and on inputs that are nearly those, without atheris."""

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.compiled_unit import is_compiled

import fuzz

CORPUS: Final = fuzz.FOLDER / "corpus"
# It inherits from classes of the data plane, which interpreted code cannot do with compiled ones.
INTERPRETED: Final = frozenset({"session"}) if is_compiled() else frozenset()
TARGETS: Final = [name for name in fuzz.targets() if name not in INTERPRETED]


def _inputs(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


@st.composite
def mutations(draw: st.DrawFn, inputs: list[bytes]) -> bytes:
    mutated = bytearray(draw(st.sampled_from(inputs)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(mutated)))
        mutated[at : at + draw(st.sampled_from([0, 1, 1, 1, 4, 9]))] = draw(st.binary(max_size=9))
    return bytes(mutated)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_passes_with_every_input_of_its_corpus(name: str) -> None:
    target = fuzz.load(name)
    for octets in _inputs(name):
        target(octets)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_passes_with_inputs_that_nobody_meant(name: str) -> None:
    target, inputs = fuzz.load(name), _inputs(name)

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(mutations(inputs) | st.binary(max_size=60))
    def passes(octets: bytes) -> None:
        target(octets)

    passes()


@pytest.mark.skipif(bool(INTERPRETED), reason="the seeds of a session need its target")
def test_the_corpus_is_what_our_encoders_make() -> None:
    from tests.fuzz.seeds import seeds

    kept = {path: path.read_bytes() for path in CORPUS.glob("*/*") if not path.name.startswith(fuzz.FOUND)}
    assert kept == dict(seeds()), "write it again: python -m tests.fuzz.seeds"
