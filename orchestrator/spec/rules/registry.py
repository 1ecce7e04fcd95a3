"""The one list of rules. A new rule is a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator.spec.rules import checkpoint, data, experts, imported, model, plan, training, weights
from orchestrator.spec.rules.plan import MAX_RANKS
from orchestrator.spec.sections import Section
from orchestrator.spec.violations import Violation

__all__ = ["MAX_RANKS", "NO_USER_CODE", "RULES", "Rule", "incompatibilities"]


class Rule(NamedTuple):
    sections: tuple[str, ...]
    """Names of the sections that `check` is called with, in this order."""
    check: Callable[..., Iterator[Violation]]


RULES: tuple[Rule, ...] = (
    Rule(("model",), model.shape),
    Rule(("model",), experts.choices),
    Rule(("model",), weights.directory),
    Rule(("model",), imported.fields),
    Rule(("model",), imported.form),
    Rule(("parallelism",), plan.ranks),
    Rule(("parallelism",), plan.schedule),
    Rule(("parallelism",), plan.sharding),
    Rule(("placement", "parallelism"), plan.order),
    Rule(("parallelism", "recovery"), plan.fewest_replicas),
    Rule(("parallelism", "model"), model.tensor_split),
    Rule(("parallelism", "model"), model.stages),
    Rule(("parallelism", "model"), model.context_split),
    Rule(("parallelism", "model"), experts.split),
    Rule(("parallelism", "model"), experts.resharding),
    Rule(("parallelism", "model"), imported.split),
    Rule(("model", "training"), imported.training),
    Rule(("parallelism", "model", "training"), imported.compiled),
    Rule(("model", "data"), imported.documents),
    Rule(("model", "training"), experts.grouped_product),
    Rule(("model", "training"), experts.compiled),
    Rule(("parallelism", "training"), training.batch_split),
    Rule(("parallelism", "training"), training.sequence_split),
    Rule(("parallelism", "training"), training.compiled),
    Rule(("parallelism", "training"), training.recomputed),
    Rule(("model", "parallelism", "training"), training.repeated_experts),
    Rule(("parallelism", "training"), training.whole_matrices),
    Rule(("parallelism", "training"), training.gradients),
    Rule(("parallelism", "data"), data.vocabulary_split),
    Rule(("parallelism", "model", "training"), training.eight_bits),
    Rule(("training",), training.schedule),
    Rule(("training",), training.offload),
    Rule(("data",), data.source),
    Rule(("data",), data.tokenizer),
    Rule(("parallelism", "training", "data"), data.document_masks),
    Rule(("checkpoint",), checkpoint.directory),
)


NO_USER_CODE = Rule(("model",), imported.refused)
"""Of a server that is told so, beside `RULES`."""


def incompatibilities(sections: Mapping[str, Section], further: Sequence[Rule] = ()) -> list[Violation]:
    """Every violation of a rule, or of a `further` one, whose sections are all in `sections` (valid ones, by name)."""
    found: list[Violation] = []
    for names, check in (*RULES, *further):
        if all(name in sections for name in names):
            found += check(*(sections[name] for name in names))
    return found
