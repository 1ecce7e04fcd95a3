"""One question a period, whoever waits."""

from __future__ import annotations

import asyncio

from actors.node_watch import NodeWatch


class FakeHead:
    """Knows the living nodes; answers when it is let."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = set(nodes)
        self.asked = 0
        self.away = False

    async def living(self) -> set[str]:
        self.asked += 1
        if self.away:
            raise TimeoutError
        return set(self.nodes)

    async def asked_again(self) -> None:
        """Until two more questions were answered: whatever was true before has been seen."""
        reached = self.asked + 2
        while self.asked < reached:  # noqa: ASYNC110 - the questions are what is waited for
            await asyncio.sleep(0)


def test_everybody_hears_of_their_own_node_by_shared_questions() -> None:
    async def scenario() -> None:
        head = FakeHead(*(f"n{i}" for i in range(100)))
        watch = NodeWatch(head.living, every_s=0.0)
        waiting = {node: asyncio.ensure_future(watch.gone(node)) for node in sorted(head.nodes)}
        await head.asked_again()
        assert head.asked < 10, "a hundred waiters ask as much as one"
        assert not any(task.done() for task in waiting.values())
        head.away = True
        head.nodes -= {"n3", "n7"}
        await head.asked_again()
        assert not any(task.done() for task in waiting.values()), "a head that is away knows of no loss"
        head.away = False
        await asyncio.gather(waiting["n3"], waiting["n7"])
        assert sum(task.done() for task in waiting.values()) == 2
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
        before = head.asked
        for _ in range(20):
            await asyncio.sleep(0)
        assert head.asked <= before + 1, "nobody waits, nobody asks"
        again = asyncio.ensure_future(watch.gone("n3"))
        await again

    asyncio.run(asyncio.wait_for(scenario(), 30))
