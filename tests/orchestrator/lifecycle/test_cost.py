"""What a rank program says of a step's cost is bounded before it is kept."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.lifecycle.cost import PHASES, step_cost
from orchestrator.lifecycle.reports import TRAFFIC_AXES

SAID = {
    "sent_bytes": {"tp": 1024, "dp": 7},
    "phases_s": {"forward": 0.25, "other": 0.0},
    "exposed_s": {"tp": 0.125},
    "peak_bytes": 2**40,
    "model_flops_per_s": 1.5e15,
    "mfu": 0.45,
}


def test_what_is_known_is_kept_in_five_digits() -> None:
    assert step_cost(SAID) == SAID
    assert step_cost({"phases_s": {"data": 0.123456789}}) == {"phases_s": {"data": 0.12346}}


def test_what_is_unknown_or_no_number_is_left_out() -> None:
    said: dict[str, Any] = {
        "sent_bytes": {"tp": -1, "dp": math.nan, "wan": 5, "pp": "many", "cp": True, "ep": 3.0},
        "phases_s": [1, 2],
        "mfu": math.inf,
        "peak_bytes": None,
        "more": {"x": 1},
    }
    assert step_cost(said) == {"sent_bytes": {"ep": 3}}
    assert step_cost("cheap") == step_cost(None) == step_cost([]) == {}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*SAID, *TRAFFIC_AXES, *PHASES]) | st.text(max_size=4), inner, max_size=9
        )
    ),
    max_leaves=30,
)


@given(json_like)
def test_whatever_is_said_the_result_is_small_and_is_json(said: Any) -> None:
    text = json.dumps(step_cost(said), allow_nan=False)
    assert len(text) < 1000
    assert step_cost(json.loads(text)) == json.loads(text)
