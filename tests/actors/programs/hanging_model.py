"""A user's model that stops getting on in the forward of one rank, or of all."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from own_model import Model
from torch import Tensor, nn


class Hangs(Model):
    """`how` it hangs: `loop` for ever, `read` from a FIFO that nobody writes to, `wait` for data that never comes; at
    the `after`-th forward of an attempt's training. `ranks`: who does in its first hang, its second ... (None: all of
    them); after these it trains to the end. `marks`: a directory in which hangs are counted."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__({})
        self._options = options
        self._forwards = 0
        marks = Path(options["marks"])
        turn = len(list(marks.iterdir()))  # now, while no rank of this attempt can hang yet
        meant = options["ranks"][turn : turn + 1]
        self._mark = marks / str(turn) if meant in ([None], [int(os.environ["RANK"])]) else None

    def forward(self, tokens: Tensor) -> Tensor:
        self._forwards += self.training
        if self._forwards == self._options["after"] and self._mark is not None:
            self._mark.touch()
            {"loop": self._loop, "read": self._read, "wait": self._wait}[self._options["how"]]()
        return super().forward(tokens)

    def _loop(self) -> None:
        while True:
            pass

    def _read(self) -> None:
        Path(self._options["fifo"]).read_text()

    def _wait(self) -> None:
        while not Path("/nowhere/batch").exists():
            time.sleep(0.1)


def build(options: dict[str, Any]) -> nn.Module:
    return Hangs(options)
