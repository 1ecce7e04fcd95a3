"""A user's model that stops getting on: in the forward of one rank, or of all, once so many steps were trained."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from own_model import Model
from torch import Tensor, nn


class Hangs(Model):
    """`how` it hangs: `loop` for ever, `read` from a FIFO that nobody writes to, `wait` for data that never comes; at
    the `after`-th forward of training, on `rank` or, when that is None, on all; once a job, as `mark` then exists, or
    `always`."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__({})
        self._options = options
        self._forwards = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self._forwards += self.training
        if self._forwards == self._options["after"] and self._is_meant():
            {"loop": self._loop, "read": self._read, "wait": self._wait}[self._options["how"]]()
        return super().forward(tokens)

    def _is_meant(self) -> bool:
        rank, own = self._options.get("rank"), os.environ["RANK"]
        if rank is not None and rank != int(own):
            return False
        if self._options.get("always"):
            return True
        mark = Path(f"{self._options['mark']}-{own}")
        if mark.exists():
            return False
        mark.touch()
        return True

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
