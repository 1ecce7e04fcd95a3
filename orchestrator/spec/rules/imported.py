"""`model.import`: what can be said of a module that only the ranks see. They check the rest before they train."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

from orchestrator.spec.rules.plan import stages_asked
from orchestrator.spec.sections import DataSpec, ModelSpec, ParallelismSpec, TrainingSpec
from orchestrator.spec.violations import Violation

FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
PATH = re.compile(r"\w+(\.\w+)*", re.ASCII)
PATTERN = re.compile(r"(\w+|\*)(\.(\w+|\*))*", re.ASCII)
OF_IMPORT = ("import_path", "options", "blocks", "embed", "head", "tp_plan")
"""Fields beside `function` that say something of an imported model."""


def fields(model: ModelSpec) -> Iterator[Violation]:
    """The fields of an imported model without `import`, and the decoder's with it."""
    if model.function is not None and model.kind == "decoder":
        message = "must be import, or left out, with model.import, not decoder"
        yield Violation("model.kind", model.kind, message)
    if model.function is None and model.kind == "import":
        message = "must name the function that gives the model, `module:function`, with model.kind import"
        yield Violation("model.import", None, message)
    if model.imported:
        known = {"kind", "function", *OF_IMPORT}
        for name in _given(model, (name for name in ModelSpec.model_fields if name not in known)):
            message = "is the decoder's; leave it out with model.import, whose function has model.options"
            yield Violation(f"model.{name}", _shown(model, name), message)
    else:
        for name in _given(model, OF_IMPORT):
            message = "says something of a model of your own: give model.import, or leave it out"
            yield Violation(f"model.{name}", _shown(model, name), message)


def refused(model: ModelSpec) -> Iterator[Violation]:
    """Of a server that runs no code but its own; not among the rules of every server."""
    if model.function is not None:
        message = (
            "names code of the job's own, and this server runs none (`atoll serve --no-user-code`); "
            f"leave it out and describe a decoder, not {model.function}"
        )
        yield Violation("model.import", model.function, message)


def form(model: ModelSpec) -> Iterator[Violation]:
    """Names and paths."""
    if model.function is not None and not FUNCTION.fullmatch(model.function):
        message = f"must be `module:function`, such as my_models:build, not {model.function}"
        yield Violation("model.import", model.function, message)
    given = model.import_path
    if given is not None and (not PurePosixPath(given).is_absolute() or ".." in PurePosixPath(given).parts):
        message = f"must be the absolute path, without `..`, of a directory that every node sees, not {given}"
        yield Violation("model.import_path", given, message)
    for field, path in _paths(model):
        if not PATH.fullmatch(path):
            message = f"must be the path of a module in the model, such as trunk.layers, not {path}"
            yield Violation(field, path, message)
    for pattern in model.tp_plan:
        if not PATTERN.fullmatch(pattern):
            message = (
                f"must name paths of modules, such as layers.*.up with * for any one part, not {pattern}"
            )
            yield Violation("model.tp_plan", pattern, message)
    for (first, outer), (second, inner) in combinations(_paths(model), 2):
        if f"{outer}.".startswith(f"{inner}.") or f"{inner}.".startswith(f"{outer}."):
            message = f"lies in {first} ({outer}), or the other way round: each module is called once"
            yield Violation(second, inner, message)
    for name, other in (("embed", "head"), ("head", "embed")):
        if getattr(model, name) and not getattr(model, other):
            message = f"must be given with model.{name}: both say what stands around the blocks"
            yield Violation(f"model.{other}", None, message)
    if model.blocks is None and (model.embed or model.head):
        message = "must name the list of blocks between model.embed and model.head"
        yield Violation("model.blocks", None, message)


def split(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    """Axes that need to know what is inside the model, or to be told."""
    if not model.imported:
        return
    for name, what in (("cp", "attention"), ("ep", "experts")):
        degree = getattr(plan, name)
        if degree > 1:
            message = f"needs the decoder's {what}; must be 1 with model.import, not {degree}"
            yield Violation(f"parallelism.{name}", degree, message)
    if plan.tp > 1:
        if not any(split != "replicate" for split in model.tp_plan.values()):
            message = f"must say which modules parallelism.tp {plan.tp} splits, colwise or rowwise"
            yield Violation("model.tp_plan", None, message)
        if plan.sequence:
            message = "needs the decoder's norms; must be false with model.import and tp > 1"
            yield Violation("parallelism.sequence", True, message)
    if stages_asked(plan) > 1:
        for name, value in (("blocks", model.blocks), ("embed", model.embed), ("head", model.head)):
            if not value:
                message = f"must say what parallelism.pp {plan.pp} deals out: blocks, embed and head"
                yield Violation(f"model.{name}", None, message)


def training(model: ModelSpec, training: TrainingSpec) -> Iterator[Violation]:
    """What works inside the layers, or needs to know where they are."""
    if not model.imported:
        return
    if (mode := training.recompute.mode) in ("selective", "elementwise"):
        message = f"needs the decoder's layers; must be none or full with model.import, not {mode}"
        yield Violation("training.recompute.mode", mode, message)
    if training.optimizer.name == "muon":
        message = "needs the decoder's layers; must be adamw or sgd with model.import, not muon"
        yield Violation("training.optimizer.name", "muon", message)
    if model.blocks is None:
        asked = (
            ("recompute.mode", training.recompute.mode, training.recompute.mode == "full"),
            ("offload.activations", True, training.offload.activations),
            ("compile", True, training.compile),
        )
        for name, value, is_asked in asked:
            if is_asked:
                message = "works block by block; give model.blocks of the imported model, or leave it out"
                yield Violation(f"training.{name}", value, message)


def compiled(plan: ParallelismSpec, model: ModelSpec, training: TrainingSpec) -> Iterator[Violation]:
    if model.imported and training.compile and plan.tp > 1:
        message = f"needs the decoder's layers with parallelism.tp {plan.tp}; must be false with model.import"
        yield Violation("training.compile", True, message)


def documents(model: ModelSpec, data: DataSpec) -> Iterator[Violation]:
    if model.imported and data.document_masks:
        message = (
            "needs the decoder's attention; must be false with model.import, which is given token ids alone"
        )
        yield Violation("data.document_masks", True, message)


def _given(model: ModelSpec, names: Iterable[str]) -> Iterator[str]:
    """Of `names` those that are not at their default."""
    plain = ModelSpec()
    return (name for name in names if getattr(model, name) != getattr(plain, name))


def _shown(model: ModelSpec, name: str) -> Any:
    value = getattr(model, name)
    return value if isinstance(value, str | int | float) else None


def _paths(model: ModelSpec) -> list[tuple[str, str]]:
    """(field, path) of all modules that the job file names, patterns aside."""
    found = [(f"model.embed.{i}", path) for i, path in enumerate(model.embed)]
    found += [] if model.blocks is None else [("model.blocks", model.blocks)]
    return found + [(f"model.head.{i}", path) for i, path in enumerate(model.head)]
