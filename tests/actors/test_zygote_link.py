"""The agent hears of its zygote's end, however it ends and whatever it left unread."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from actors.zygote_link import ZygoteLink

DEADLINE_S = 120.0


async def _killed_with_a_request_unread() -> bool:
    link = ZygoteLink("actors.training.loop:train", threads=1)
    os.kill(link.pid, signal.SIGSTOP)
    lost = asyncio.Event()

    def heard(message: Mapping[str, Any]) -> None:
        raise AssertionError(f"a stopped zygote said {message}")

    listening = asyncio.create_task(link.listen(heard, lost.set))
    while link._writer is None:  # noqa: ASYNC110  a few turns of the loop
        await asyncio.sleep(0)
    asked = asyncio.create_task(link.open_rendezvous("127.0.0.1"))
    await asyncio.sleep(0)  # the request is written
    os.kill(link.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError, match="zygote is gone"):
        await asyncio.wait_for(asked, DEADLINE_S)
    with pytest.raises(ConnectionError, match="zygote is gone"):
        await asyncio.wait_for(link.open_rendezvous("127.0.0.1"), DEADLINE_S)
    await asyncio.wait_for(lost.wait(), DEADLINE_S)
    await listening
    link.end()
    link.end()  # a second time nothing is signalled
    return lost.is_set()


def test_a_zygote_killed_with_a_request_unread_is_lost_at_once() -> None:
    assert asyncio.run(_killed_with_a_request_unread())
