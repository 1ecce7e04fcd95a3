"""Rotary positions in a config.json, in the spelling of either generation of the library. Pure: no torch.

Until version 4: `rope_theta` and `rope_scaling` (null, or a mapping with `rope_type`, earlier `type`). Since version 5:
`rope_parameters`, a mapping with `rope_theta` and `rope_type` in it. Both are read, and both are written.
"""

from __future__ import annotations

from typing import Any

from actors.training.interchange.settings import Settings
from orchestrator.spec.sections import ModelSpec

_LLAMA3 = {
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_positions",
}


def read_rope(settings: Settings) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` of ModelSpec."""
    theta = settings.number("rope_theta")
    where = "rope_parameters" if settings.has("rope_parameters") else "rope_scaling"
    settings.value("rope_scaling")  # version 5 gives both; the newer spelling counts
    given = settings.value(where)
    if given is None:
        return {"rope_theta": theta}
    if not isinstance(given, dict):
        settings.refuse(where, f"{given!r}; must be a mapping or null")
        return {"rope_theta": theta}
    theta = given.get("rope_theta", theta)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        settings.refuse(where, f"of the type {kind!r}; only default, linear and llama3 are computed here")
        return {"rope_theta": theta}
    wanted = {"default": (), "linear": ("factor",), "llama3": ("factor", *_LLAMA3)}[kind]
    missing = [name for name in wanted if name not in given]
    unknown = set(given) - set(wanted) - {"rope_theta", "rope_type", "type"}
    # The original length is a note beside the other types; a partial factor of 1 is the whole.
    unknown -= {"original_max_position_embeddings"}
    unknown = {name for name in unknown if not (name == "partial_rotary_factor" and given[name] == 1)}
    if missing:
        settings.refuse(where, f"of the type {kind} and lacks {', '.join(missing)}")
    if unknown:
        settings.refuse(where, f"of the type {kind} with {', '.join(sorted(unknown))}, not known here")
    if kind == "default" or missing or unknown:
        return {"rope_theta": theta}
    scaling = {"kind": kind} | {_LLAMA3.get(name, name): given[name] for name in wanted}
    return {"rope_theta": theta, "rope_scaling": scaling}


def written_rope(model: ModelSpec) -> dict[str, Any]:
    """The settings for a config.json."""
    scaling = model.rope_scaling
    chosen: dict[str, Any] = {}
    if scaling is not None:
        chosen = {"rope_type": scaling.kind, "factor": scaling.factor}
        if scaling.kind == "llama3":
            chosen |= {theirs: getattr(scaling, ours) for theirs, ours in _LLAMA3.items()}
    return {
        "rope_theta": model.rope_theta,
        "rope_scaling": chosen or None,
        "rope_parameters": {"rope_theta": model.rope_theta, "rope_type": "default"} | chosen,
    }
