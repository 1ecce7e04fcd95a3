"""What one rank measured of one of its steps: seconds, by what they were spent on."""

from __future__ import annotations

from typing import NamedTuple


class StepPhases(NamedTuple):
    """Of one rank and step. Waiting for other ranks is in no phase: it has fields of its own. NaN: not known."""

    data_s: float
    """The step's sequences, from the corpus to the device."""
    forward_s: float
    backward_s: float
    receive_s: float
    """Waiting for messages of the stage before or behind it in the pipeline; NaN on accelerators, as the next two."""
    send_s: float
    collective_s: float
    optimizer_s: float
    checkpoint_s: float
    """What of a save the rank waited for since the step before."""
    garbage_s: float
    """Python's garbage collection, part of the phases in which it fell."""
    compute_cpu_s: float
    """CPU time of the thread that computes, forward and backward; NaN on accelerators. Without other processes on its
    core it is what forward and backward took."""


ROW = ("rank", "step", *StepPhases._fields)
"""Columns of measurements on their way to the supervisor: an array of doubles, a row a rank and step."""
AT = {name: place for place, name in enumerate(StepPhases._fields)}
"""Where each field is in a row without its rank and step."""
