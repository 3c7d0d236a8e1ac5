"""Blocks are lent, taken back and kept within a bound."""

from umbilical.wire.buffer import Block, BlockPool


def test_view_and_data_of_a_block_are_the_same_memory() -> None:
    block = Block(16)
    block.view[3:6] = b"abc"
    assert block.data[3:6] == b"abc"
    assert block.size == len(block.data) == 16


def test_a_returned_block_is_lent_again() -> None:
    pool = BlockPool(64, 2)
    block = pool.take()
    pool.give(block)
    assert pool.take() is block


def test_two_borrowers_never_get_the_same_block() -> None:
    pool = BlockPool(64, 2)
    assert pool.take() is not pool.take()


def test_the_pool_keeps_no_more_blocks_than_it_was_told() -> None:
    pool = BlockPool(64, 2)
    blocks = [pool.take() for _ in range(5)]
    for block in blocks:
        pool.give(block)
    lent = [pool.take() for _ in range(5)]
    assert sum(any(block is old for old in blocks) for block in lent) == 2
