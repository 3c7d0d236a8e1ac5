"""What holds without a word."""

from umbilical.assets.hardway.cluster import Role
from umbilical.assets.hardway.config_defaults import MACHINE_NETWORK, NUMBERS, SIZES, Place
from umbilical.assets.hardway.config_keys import MAX_MASTERS


def test_every_place_has_a_number_of_its_own_in_the_network() -> None:
    numbers = [NUMBERS[place] for place in Place]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < MACHINE_NETWORK.num_addresses - 1


def test_masters_end_before_workers_begin() -> None:
    assert NUMBERS[Place.MASTER] + MAX_MASTERS <= NUMBERS[Place.WORKER]


def test_every_role_has_a_size() -> None:
    assert set(SIZES) == set(Role)
