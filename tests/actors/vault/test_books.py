"""The books of a vault: two generations at most, within the limit, and nothing of an older attempt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.vault import memory
from actors.vault.books import RefusedError, Vault
from orchestrator.recovery.snapshots import Copy, Generation

NOW = (1, 2)


def generation(step: int) -> Generation:
    return Generation(*NOW, 0, step)


def file_of(size: int) -> int:
    file = memory.new_file(size)
    memory.seal(file)
    return file


def copy(rank: int, step: int, size: int = 100) -> Copy:
    return Copy("n0", rank, generation(step), size, "", "plan")


def vault(limit: int = 1000) -> Vault:
    return Vault("n0", limit, lambda: (1 << 40, 1 << 40))


@pytest.fixture(autouse=True)
def no_descriptor_is_lost() -> Iterator[None]:
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def put(held: Vault, rank: int, step: int, size: int = 100) -> None:
    file = file_of(size)
    try:
        held.put(NOW, copy(rank, step, size), file)
    except RefusedError:
        os.close(file)
        raise


def steps(held: Vault) -> set[tuple[int, int]]:
    return {(one.rank, one.generation.step) for one in held.fence(NOW)}


def test_the_committed_generation_stays_until_the_next_is_committed() -> None:
    held = vault()
    put(held, 0, 10)
    held.commit(NOW, 0, generation(10))
    put(held, 0, 20)
    assert steps(held) == {(0, 10), (0, 20)}
    held.commit(NOW, 0, generation(20))
    assert steps(held) == {(0, 20)}
    assert held.used_bytes() == 100
    held.clear()


def test_a_generation_that_never_became_complete_makes_room_for_the_next() -> None:
    held = vault()
    put(held, 0, 10)
    held.commit(NOW, 0, generation(10))
    put(held, 0, 20)
    put(held, 0, 30)
    assert steps(held) == {(0, 10), (0, 30)}
    held.clear()


def test_the_limit_counts_what_is_held_and_what_is_promised() -> None:
    held = vault(limit=250)
    put(held, 0, 10)
    held.promise(NOW, 1, 100)
    assert held.used_bytes() == 200
    with pytest.raises(
        RefusedError, match=r"100 bytes does not fit: the vault of n0 has 200 of 250 bytes in use"
    ):
        held.promise(NOW, 2, 100)
    held.withdraw(1)
    held.promise(NOW, 2, 100)
    put(held, 2, 10)
    assert held.used_bytes() == 200, "a promise that is kept counts once"
    held.clear()


def test_memory_that_the_node_needs_is_not_taken() -> None:
    held = Vault("n0", 1 << 50, lambda: (199, 2000))  # a twentieth of it, 100, stays free
    with pytest.raises(RefusedError, match=r"n0 has .* bytes of memory left"):
        held.promise(NOW, 0, 100)
    held.promise(NOW, 0, 99)


def test_an_older_attempt_neither_puts_nor_commits_nor_asks() -> None:
    held = vault()
    put(held, 0, 10)
    held.fence((2, 3))
    file = file_of(100)
    for act in (
        lambda: held.put(NOW, copy(0, 20), file),
        lambda: held.commit(NOW, 0, generation(10)),
        lambda: held.promise(NOW, 0, 1),
        lambda: held.fence(NOW),
    ):
        with pytest.raises(RefusedError, match="attempt 2 of supervisor 1 is over"):
            act()
    os.close(file)
    assert [one.generation.step for one in held.fence((2, 3))] == [10], (
        "what it had before may still be gone on from"
    )
    held.clear()


def test_what_is_not_there_is_refused() -> None:
    held = vault()
    with pytest.raises(RefusedError, match="rank 3 after step 10"):
        held.get(3, generation(10))
    with pytest.raises(RefusedError, match="rank 3 after step 10"):
        held.commit(NOW, 3, generation(10))


def test_a_sealed_file_is_changed_by_nobody() -> None:
    file = file_of(64)
    with pytest.raises(PermissionError):
        os.pwrite(file, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    os.close(file)


def test_what_the_node_has_left_is_less_than_what_it_has() -> None:
    free, whole = memory.of_this_node()
    assert 0 < free < whole
