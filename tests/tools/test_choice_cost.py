import pytest

import choice_cost


@pytest.mark.parametrize(("strategies", "address"), choice_cost.CASES)
def test_every_case_has_an_agent_to_choose_and_leaves_the_loads_as_they_were(
    strategies: tuple[str, ...], address: str
) -> None:
    yard = choice_cost.crowded_yard(4, 8, strategies)
    assert choice_cost.choice_seconds(yard, address, [1, 2, 3]) > 0
    assert choice_cost.dial_seconds(yard, address, [1, 2, 3]) > 0
    chosen = {yard.choose(address, draw) for draw in range(8)}
    assert {link.load() for link in chosen if link is not None} == {2}
