"""B6: impossible plans, each with every violation it has: field paths and sentences, all of them, in order.

Each sentence carries the arithmetic that makes the plan impossible; the expected ones were worked out from the engine's
splits (`actors/training/parallel`), and the engine was seen to fail or hang on those that no division explains:
resharding over neighbours with tp hangs, rows of experts off 16 bytes raise in torch's grouped product.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.spec import InvalidSpecError, parse_spec

Found = list[tuple[str, str]]


def job(**sections: Any) -> dict[str, Any]:
    """The smallest job (4 layers, 4 heads, 2 key-value heads, 16 sequences of 128) with some fields set."""
    return {"name": "demo", **sections, "training": {"steps": 10} | sections.get("training", {})}


IMPOSSIBLE: list[tuple[str, dict[str, Any], Found]] = [
    # Tensor parallelism
    ("heads, key-value heads and positions over 3", job(parallelism={"tp": 3}), [
        ("parallelism.tp", "must divide model.heads (4), 3 does not"),
        ("parallelism.tp", "must divide model.kv_heads (2), 3 does not"),
        ("parallelism.tp", "must divide training.sequence_length (128), 3 does not"),
    ]),
    ("heads over tp", job(model={"heads": 6, "kv_heads": 6, "hidden": 96}, parallelism={"tp": 4}), [
        ("parallelism.tp", "must divide model.heads (6), 4 does not"),
        ("parallelism.tp", "must divide model.kv_heads (6), 4 does not"),
    ]),
    ("key-value heads over tp", job(parallelism={"tp": 4}), [
        ("parallelism.tp", "must divide model.kv_heads (2), 4 does not"),
    ]),
    ("feed-forward over tp", job(model={"ffn_hidden": 385}, parallelism={"tp": 2}), [
        ("parallelism.tp", "must divide model.ffn_hidden (385), 2 does not"),
    ]),
    ("positions over tp", job(parallelism={"tp": 2}, training={"sequence_length": 127}), [
        ("parallelism.tp", "must divide training.sequence_length (127), 2 does not"),
    ]),
    ("a rank without vocabulary", job(
        model={"heads": 200, "kv_heads": 200, "hidden": 400, "ffn_hidden": 400},
        parallelism={"tp": 200, "sequence": False}, data={"tokenizer": "bpe", "vocab_size": 301}), [
        ("parallelism.tp",
         "leaves some rank no part of data.vocab_size (301), cut into parts of 2; must be another degree, such "
         "as 151, not 200"),
    ]),
    ("everything that tp cuts", job(
        model={"heads": 6, "kv_heads": 3, "hidden": 96, "ffn_hidden": 385}, parallelism={"tp": 4},
        training={"sequence_length": 126}), [
        ("parallelism.tp", "must divide model.heads (6), 4 does not"),
        ("parallelism.tp", "must divide model.kv_heads (3), 4 does not"),
        ("parallelism.tp", "must divide model.ffn_hidden (385), 4 does not"),
        ("parallelism.tp", "must divide training.sequence_length (126), 4 does not"),
    ]),
    # Context parallelism
    ("positions over cp", job(parallelism={"cp": 2}, training={"sequence_length": 130}), [
        ("training.sequence_length",
         "must be a multiple of 2 x cp x tp = 4 (each context rank holds two chunks), not 130"),
    ]),
    ("positions over cp and tp", job(parallelism={"cp": 2, "tp": 2}, training={"sequence_length": 132}), [
        ("training.sequence_length",
         "must be a multiple of 2 x cp x tp = 8 (each context rank holds two chunks), not 132"),
    ]),
    ("positions over cp, tp without sequence parallelism", job(
        parallelism={"cp": 2, "tp": 2, "sequence": False}, training={"sequence_length": 130}), [
        ("training.sequence_length", "must be a multiple of 2 x cp = 4 (each context rank holds two chunks), not 130"),
    ]),
    ("ulysses: key-value heads over cp", job(parallelism={"cp": 4, "context": "ulysses"}), [
        ("parallelism.cp",
         "ulysses deals model.kv_heads (2) over tp x cp = 1 x 4 ranks, which must divide it; all-gather and "
         "ring need not"),
    ]),
    ("ulysses: key-value heads over tp x cp", job(parallelism={"cp": 2, "tp": 2, "context": "ulysses"}), [
        ("parallelism.cp",
         "ulysses deals model.kv_heads (2) over tp x cp = 2 x 2 ranks, which must divide it; all-gather and "
         "ring need not"),
    ]),
    ("ulysses: heads and key-value heads", job(parallelism={"cp": 8, "context": "ulysses"}), [
        ("parallelism.cp",
         "ulysses deals model.heads (4) over tp x cp = 1 x 8 ranks, which must divide it; all-gather and ring "
         "need not"),
        ("parallelism.cp",
         "ulysses deals model.kv_heads (2) over tp x cp = 1 x 8 ranks, which must divide it; all-gather and "
         "ring need not"),
    ]),
    ("ulysses: heads, key-value heads and positions", job(parallelism={"cp": 3, "context": "ulysses"}), [
        ("parallelism.cp",
         "ulysses deals model.heads (4) over tp x cp = 1 x 3 ranks, which must divide it; all-gather and ring "
         "need not"),
        ("parallelism.cp",
         "ulysses deals model.kv_heads (2) over tp x cp = 1 x 3 ranks, which must divide it; all-gather and "
         "ring need not"),
        ("training.sequence_length",
         "must be a multiple of 2 x cp x tp = 6 (each context rank holds two chunks), not 128"),
    ]),
    # Pipelines
    ("more stages than layers", job(parallelism={"pp": 5, "microbatches": 8}), [
        ("parallelism.pp", "5 stages need at least as many layers, model.layers is 4"),
    ]),
    ("1f1b with few micro-batches", job(parallelism={"pp": 4, "microbatches": 2}), [
        ("parallelism.microbatches", "1f1b with 4 pipeline ranks needs at least 4 micro-batches, not 2"),
    ]),
    ("1f1b with virtual stages", job(parallelism={"pp": 2, "microbatches": 2, "virtual_stages": 2}), [
        ("parallelism.virtual_stages", "must be 1 with 1f1b, not 2; interleaved-1f1b and zero-bubble take more"),
    ]),
    ("gpipe with virtual stages", job(parallelism={"pp": 2, "schedule": "gpipe", "virtual_stages": 3}), [
        ("parallelism.virtual_stages", "must be 1 with gpipe, not 3; interleaved-1f1b and zero-bubble take more"),
    ]),
    ("virtual stages without a pipeline", job(parallelism={"virtual_stages": 2}), [
        ("parallelism.virtual_stages", "must be 1 without a pipeline (parallelism.pp is 1), not 2"),
    ]),
    ("interleaved with one stage a rank", job(
        parallelism={"pp": 2, "schedule": "interleaved-1f1b", "microbatches": 2}), [
        ("parallelism.virtual_stages",
         "must be at least 2 with interleaved-1f1b, not 1; with one stage a rank use 1f1b"),
    ]),
    ("interleaved with more stages than layers", job(
        parallelism={"pp": 4, "schedule": "interleaved-1f1b", "virtual_stages": 2, "microbatches": 8}), [
        ("parallelism.pp", "8 stages (4 x 2 virtual stages) need at least as many layers, model.layers is 4"),
    ]),
    ("interleaved with unequal rounds", job(
        parallelism={"pp": 2, "schedule": "interleaved-1f1b", "virtual_stages": 2, "microbatches": 5},
        training={"global_batch": 15}), [
        ("parallelism.microbatches",
         "interleaved-1f1b deals them in 2 equal rounds, which 5 do not fill; a multiple of parallelism.pp (2) "
         "does"),
    ]),
    ("zero-bubble with unequal rounds", job(
        parallelism={"pp": 4, "schedule": "zero-bubble", "microbatches": 9}, training={"global_batch": 18}), [
        ("parallelism.microbatches",
         "zero-bubble deals them in 2 equal rounds, which 9 do not fill; a multiple of parallelism.pp (4) does"),
    ]),
    ("zbv with one stage a rank", job(parallelism={"pp": 2, "schedule": "zbv", "microbatches": 4}), [
        ("parallelism.virtual_stages", "must be 2 with zbv, which gives each rank a stage from either end, not 1"),
    ]),
    ("zbv with fewer than two layers a rank", job(
        parallelism={"pp": 4, "schedule": "zbv", "virtual_stages": 2, "microbatches": 8}), [
        ("parallelism.pp", "8 stages (4 x 2 virtual stages) need at least as many layers, model.layers is 4"),
    ]),
    ("zbv with three stages a rank and few layers", job(
        parallelism={"pp": 4, "schedule": "zbv", "virtual_stages": 3, "microbatches": 8}), [
        ("parallelism.pp", "8 stages (4 x 2 virtual stages) need at least as many layers, model.layers is 4"),
        ("parallelism.virtual_stages", "must be 2 with zbv, which gives each rank a stage from either end, not 3"),
    ]),
    ("tied embeddings over stages", job(model={"tied_embeddings": True}, parallelism={"pp": 2, "microbatches": 2}), [
        ("model.tied_embeddings",
         "needs the embedding and the head on one stage; with 2 stages must be false (or parallelism.pp 1)"),
    ]),
    ("tied embeddings, few layers, few micro-batches", job(
        model={"tied_embeddings": True}, parallelism={"pp": 8, "microbatches": 4}), [
        ("model.tied_embeddings",
         "needs the embedding and the head on one stage; with 8 stages must be false (or parallelism.pp 1)"),
        ("parallelism.microbatches", "1f1b with 8 pipeline ranks needs at least 8 micro-batches, not 4"),
        ("parallelism.pp", "8 stages need at least as many layers, model.layers is 4"),
    ]),
    ("layers by hand for too few stages", job(parallelism={"pp": 2, "microbatches": 2, "layers_per_stage": [4]}), [
        ("parallelism.layers_per_stage", "must name 2 stages (pp 2 x 1 a rank), not 1"),
    ]),
    ("layers by hand that do not add up", job(parallelism={"pp": 2, "microbatches": 2, "layers_per_stage": [2, 3]}), [
        ("parallelism.layers_per_stage", "must add up to model.layers (4), not 5"),
    ]),
    ("layers by hand with an empty stage", job(parallelism={"pp": 2, "microbatches": 2, "layers_per_stage": [0, 4]}), [
        ("parallelism.layers_per_stage", "stage 0 has no layer; every stage needs one"),
    ]),
    ("layers by hand, all of it wrong", job(parallelism={"pp": 2, "microbatches": 2, "layers_per_stage": [0, 1, 1]}), [
        ("parallelism.layers_per_stage", "must name 2 stages (pp 2 x 1 a rank), not 3"),
        ("parallelism.layers_per_stage", "must add up to model.layers (4), not 2"),
        ("parallelism.layers_per_stage", "stage 0 has no layer; every stage needs one"),
    ]),
    ("layers by hand without a pipeline", job(parallelism={"layers_per_stage": [2, 2]}), [
        ("parallelism.layers_per_stage", "must name 1 stage (pp 1 x 1 a rank), not 2"),
    ]),
    ("zbv by hand for one stage a rank", job(
        parallelism={"pp": 2, "schedule": "zbv", "virtual_stages": 2, "microbatches": 4, "layers_per_stage": [2, 2]}
    ), [
        ("parallelism.layers_per_stage", "must name 4 stages (pp 2 x 2 a rank), not 2"),
    ]),
    # Data parallelism and ZeRO
    ("zero on one rank", job(parallelism={"zero": 1}), [
        ("parallelism.zero",
         "needs data or context ranks to shard over; parallelism.dp and cp are 1, so must be 0, not 1"),
    ]),
    ("zero over tensor ranks alone", job(parallelism={"tp": 2, "zero": 3}), [
        ("parallelism.zero",
         "needs data or context ranks to shard over; parallelism.dp and cp are 1, so must be 0, not 3"),
    ]),
    ("order with an unheard-of axis, one twice, one missing", job(
        parallelism={"tp": 2, "dp": 4}, placement={"order": "dp-sp-dp"}), [
        ("placement.order", "names sp; the axes are tp, cp, ep, dp, pp"),
        ("placement.order", "names dp more than once"),
        ("placement.order", "leaves out axes of several ranks (tp 2); name each of them once"),
    ]),
    ("more replicas at least than there are", job(parallelism={"dp": 2}, recovery={"min_dp": 3}), [
        ("recovery.min_dp", "must be at most parallelism.dp (2)"),
    ]),
    ("sharding factor without zero", job(parallelism={"dp": 4, "dp_shard": 2}), [
        ("parallelism.dp_shard",
         "needs parallelism.zero 1, 2 or 3: without ZeRO nothing is sharded over data ranks; leave it out, not "
         "2"),
    ]),
    ("sharding factor that does not divide", job(parallelism={"dp": 4, "zero": 2, "dp_shard": 3}), [
        ("parallelism.dp_shard", "must divide parallelism.dp (4), 3 does not"),
    ]),
    ("sharding factor above dp", job(parallelism={"dp": 2, "zero": 1, "dp_shard": 4}), [
        ("parallelism.dp_shard", "must divide parallelism.dp (2), 4 does not"),
    ]),
    ("sharding over one rank", job(parallelism={"dp": 2, "zero": 1, "dp_shard": 1}), [
        ("parallelism.dp_shard", "must be at least 2 with zero 1 and cp 1: over one rank nothing is sharded, not 1"),
    ]),
    ("resharding with zero 2", job(parallelism={"dp": 2, "zero": 2, "reshard_after_forward": False}), [
        ("parallelism.reshard_after_forward", "is a choice of parallelism.zero 3 alone; leave it out with zero 2"),
    ]),
    ("resharding without zero", job(parallelism={"dp": 4, "reshard_after_forward": 2}), [
        ("parallelism.reshard_after_forward", "is a choice of parallelism.zero 3 alone; leave it out with zero 0"),
    ]),
    ("resharding over no part", job(parallelism={"dp": 4, "zero": 3, "reshard_after_forward": 3}), [
        ("parallelism.reshard_after_forward", "must divide the 4 ranks that share the states and be less, not 3"),
    ]),
    ("resharding over all", job(parallelism={"dp": 4, "zero": 3, "reshard_after_forward": 4}), [
        ("parallelism.reshard_after_forward", "must divide the 4 ranks that share the states and be less, not 4"),
    ]),
    ("resharding over neighbours in a pipeline", job(
        parallelism={"dp": 4, "pp": 2, "microbatches": 2, "zero": 3, "reshard_after_forward": 2}), [
        ("parallelism.reshard_after_forward",
         "must be true or false with a pipeline, which keeps parameters gathered all step, not 2"),
    ]),
    ("resharding over neighbours with tp", job(parallelism={"dp": 4, "tp": 2, "zero": 3, "reshard_after_forward": 2}), [
        ("parallelism.reshard_after_forward",
         "must be true or false with parallelism.tp 2, not 2: a number needs tp 1"),
    ]),
    ("resharding over neighbours, all of it wrong", job(
        parallelism={"dp": 2, "tp": 2, "pp": 2, "microbatches": 2, "zero": 3, "reshard_after_forward": 8}), [
        ("parallelism.reshard_after_forward",
         "must be true or false with a pipeline, which keeps parameters gathered all step, not 8"),
        ("parallelism.reshard_after_forward",
         "must be true or false with parallelism.tp 2, not 8: a number needs tp 1"),
        ("parallelism.reshard_after_forward", "must divide the 2 ranks that share the states and be less, not 8"),
    ]),
    ("batch over replicas and micro-batches", job(parallelism={"dp": 3, "microbatches": 2}), [
        ("training.global_batch",
         "must be a multiple of parallelism.dp x parallelism.microbatches (3 x 2 = 6), not 16"),
    ]),
    ("too many ranks", job(
        parallelism={"dp": 131_072, "pp": 2, "schedule": "gpipe", "microbatches": 2},
        training={"global_batch": 262_144}), [
        ("parallelism", "tp x pp x dp x cp = 262144 ranks; a job has at most 131072"),
    ]),
    # Experts
    ("expert ranks without experts", job(parallelism={"dp": 2, "ep": 2}), [
        ("parallelism.ep", "needs experts: model.moe is not given, so must be 1, not 2"),
    ]),
    ("experts over ep", job(
        model={"moe": {"experts": 4}}, parallelism={"dp": 3, "ep": 3}, training={"global_batch": 18}), [
        ("parallelism.ep", "must divide model.moe.experts (4), 3 does not"),
    ]),
    ("ep beyond its ranks", job(model={"moe": {"experts": 4}}, parallelism={"dp": 2, "ep": 4}), [
        ("parallelism.ep", "must divide dp x cp x tp = 2 ranks, over which experts are spread; 4 does not"),
    ]),
    ("ep across replicas of shards", job(
        model={"moe": {"experts": 4}}, parallelism={"dp": 4, "zero": 1, "dp_shard": 2, "ep": 4}), [
        ("parallelism.ep", "must divide dp_shard x cp x tp = 2 ranks, over which experts are spread; 4 does not"),
    ]),
    ("experts and ranks over ep", job(model={"moe": {"experts": 6}}, parallelism={"dp": 2, "ep": 4}), [
        ("parallelism.ep", "must divide model.moe.experts (6), 4 does not"),
        ("parallelism.ep", "must divide dp x cp x tp = 2 ranks, over which experts are spread; 4 does not"),
    ]),
    ("more choices than experts", job(model={"moe": {"experts": 4, "top_k": 5}}), [
        ("model.moe.top_k", "must be at most model.moe.experts (4), not 5"),
    ]),
    ("no layer with experts", job(model={"moe": {"experts": 4, "dense_layers": 4}}), [
        ("model.moe.dense_layers", "must be less than model.layers (4), not 4: no layer would have experts"),
    ]),
    ("a gate of no shared experts", job(model={"moe": {"experts": 4, "shared_gate": True}}), [
        ("model.moe.shared_gate",
         "gates shared experts, of which there are none: give model.moe.shared_experts, or leave it out"),
    ]),
    ("experts and tp without sequence parallelism", job(
        model={"moe": {"experts": 4}}, parallelism={"tp": 2, "sequence": False}), [
        ("parallelism.sequence", "must be true with experts and tp > 1: each tensor rank routes its own positions"),
    ]),
    ("shared experts over tp", job(
        model={"heads": 8, "kv_heads": 8, "moe": {"experts": 4, "ffn_hidden": 20, "shared_experts": 1}},
        parallelism={"tp": 8}), [
        ("parallelism.tp", "must divide the inner size of the shared experts (20), 8 does not"),
    ]),
    ("resharding over neighbours with ep", job(
        model={"moe": {"experts": 4}}, parallelism={"dp": 4, "ep": 2, "zero": 3, "reshard_after_forward": 2}), [
        ("parallelism.reshard_after_forward", "must be true or false with experts over parallelism.ep 2 ranks, not 2"),
    ]),
    ("rows of experts in fp32", job(model={"moe": {"experts": 4, "ffn_hidden": 10}}), [
        ("model.moe.ffn_hidden",
         "must be a multiple of 4 with experts in fp32, not 10: rows of the grouped product begin at multiples "
         "of 16 bytes"),
    ]),
    ("rows of experts in bf16", job(
        model={"hidden": 36, "heads": 2, "moe": {"experts": 4, "ffn_hidden": 24}}, training={"precision": "bf16"}), [
        ("model.hidden",
         "must be a multiple of 8 with experts in bf16, not 36: rows of the grouped product begin at multiples "
         "of 16 bytes"),
    ]),
    ("rows of experts that take model.ffn_hidden", job(
        model={"ffn_hidden": 388, "moe": {"experts": 4}}, training={"precision": "fp16"}), [
        ("model.ffn_hidden",
         "must be a multiple of 8 with experts in fp16, not 388: rows of the grouped product begin at "
         "multiples of 16 bytes"),
    ]),
    ("experts, all of it wrong", job(
        model={"moe": {"experts": 4, "top_k": 8, "dense_layers": 9, "ffn_hidden": 10, "shared_gate": True}},
        parallelism={"tp": 2, "dp": 2, "ep": 3, "sequence": False}), [
        ("model.moe.dense_layers", "must be less than model.layers (4), not 9: no layer would have experts"),
        ("model.moe.ffn_hidden",
         "must be a multiple of 4 with experts in fp32, not 10: rows of the grouped product begin at multiples "
         "of 16 bytes"),
        ("model.moe.shared_gate",
         "gates shared experts, of which there are none: give model.moe.shared_experts, or leave it out"),
        ("model.moe.top_k", "must be at most model.moe.experts (4), not 8"),
        ("parallelism.ep", "must divide model.moe.experts (4), 3 does not"),
        ("parallelism.ep", "must divide dp x cp x tp = 4 ranks, over which experts are spread; 3 does not"),
        ("parallelism.sequence", "must be true with experts and tp > 1: each tensor rank routes its own positions"),
    ]),
    # Training
    ("compile with communication inside", job(
        model={"moe": {"experts": 4}}, parallelism={"tp": 2, "cp": 2, "ep": 2}, training={"compile": True}), [
        ("training.compile",
         "cannot trace the grouped product of experts in fp32; must be false, or training.precision bf16"),
        ("training.compile",
         "is for attention and experts without communication inside; parallelism.cp is 2, so must be false"),
        ("training.compile",
         "is for attention and experts without communication inside; parallelism.ep is 2, so must be false"),
    ]),
    ("compile with offloaded activations", job(training={"compile": True, "offload": {"activations": True}}), [
        ("training.compile", "is not supported with training.offload.activations; one of them must be false"),
    ]),
    ("compile with zbv", job(
        parallelism={"pp": 2, "schedule": "zbv", "virtual_stages": 2, "microbatches": 4}, training={"compile": True}
    ), [
        ("training.compile", "cannot split a compiled backward; must be false with the schedule zbv"),
    ]),
    ("compile and recompute with zero-bubble and tp", job(
        parallelism={"tp": 2, "pp": 2, "schedule": "zero-bubble", "microbatches": 2},
        training={"compile": True, "recompute": {"mode": "full"}}), [
        ("training.compile", "cannot split a compiled backward; must be false with the schedule zero-bubble"),
        ("training.recompute.mode",
         "must be none with the schedule zero-bubble, whose split backward would compute everything twice, not "
         "full"),
    ]),
    ("documents kept apart over cp and pp, compiled", job(
        parallelism={"cp": 2, "pp": 2, "microbatches": 2}, training={"compile": True},
        data={"document_masks": True, "sources": [{"path": "/corpus.jsonl"}]}), [
        ("training.compile",
         "is for attention and experts without communication inside; parallelism.cp is 2, so must be false"),
        ("data.document_masks",
         "needs parallelism.cp 1, where each rank sees the tokens of whole sequences, not 2"),
        ("data.document_masks",
         "needs parallelism.pp 1, where each rank sees the tokens of whole sequences, not 2"),
        ("data.document_masks", "needs training.compile false"),
    ]),
    ("a tokenizer file without a file, documents without sources", job(
        data={"tokenizer": "file", "holdout": "hash", "vocab_size": 512}), [
        ("data.holdout", "is about documents, and data.source is a single one; give data.sources"),
        ("data.tokenizer_file", "must name a tokenizers JSON file when data.tokenizer is file"),
    ]),
    ("compile of an import over tp", job(
        model={"import": "mine:build", "blocks": "layers", "tp_plan": {"layers.*": "colwise"}},
        parallelism={"tp": 2, "sequence": False}, training={"compile": True}), [
        ("training.compile",
         "needs the decoder's layers with parallelism.tp 2; must be false with model.import"),
    ]),
    ("recompute with zbv", job(
        parallelism={"pp": 2, "schedule": "zbv", "virtual_stages": 2, "microbatches": 4},
        training={"recompute": {"mode": "selective"}}), [
        ("training.recompute.mode",
         "must be none with the schedule zbv, whose split backward would compute everything twice, not "
         "selective"),
    ]),
    ("elementwise recompute of what is compiled or offloaded", job(
        training={"recompute": {"mode": "elementwise"}, "compile": True, "offload": {"activations": True}}), [
        ("training.compile", "is not supported with training.offload.activations; one of them must be false"),
        ("training.compile", "is not supported with training.recompute.mode elementwise; must be false"),
        ("training.offload.activations",
         "is not supported with training.recompute.mode elementwise; must be false"),
    ]),
    ("elementwise recompute of sharded experts", job(
        model={"moe": {"experts": 4, "top_k": 2}}, parallelism={"dp": 2, "zero": 2},
        training={"recompute": {"mode": "elementwise"}}), [
        ("parallelism.zero", "must be 0 with model.moe and training.recompute.mode elementwise, not 2"),
    ]),
    ("muon on parts of matrices", job(parallelism={"tp": 2}, training={"optimizer": {"name": "muon"}}), [
        ("parallelism.tp", "needs whole matrices: parallelism.tp must be 1 with muon, not 2"),
    ]),
    ("muon on shards", job(parallelism={"dp": 2, "zero": 1}, training={"optimizer": {"name": "muon"}}), [
        ("parallelism.zero", "needs whole matrices: parallelism.zero must be 0 with muon, not 1"),
    ]),
    ("muon on parts and shards", job(
        parallelism={"tp": 2, "dp": 2, "zero": 2}, training={"optimizer": {"name": "muon"}}), [
        ("parallelism.tp", "needs whole matrices: parallelism.tp must be 1 with muon, not 2"),
        ("parallelism.zero", "needs whole matrices: parallelism.zero must be 0 with muon, not 2"),
    ]),
    ("fp8 in a split backward", job(
        parallelism={"pp": 2, "schedule": "zero-bubble", "microbatches": 4}, training={"precision": "fp8"}), [
        ("training.precision",
         "cannot split the backward of an fp8 product, as the schedule zero-bubble does; must be bf16, fp16, "
         "fp32 or fp64, not fp8"),
    ]),
    ("fp8 in a module of the job's own", job(
        model={"import": "mine:build"}, training={"precision": "fp8", "gradient_precision": "bf16"}), [
        ("training.gradient_precision",
         "rounds away what the products give unless training.precision is bf16; must be fp32 with fp8, not bf16"),
        ("training.precision",
         "knows the decoder's products; must be bf16, fp16, fp32 or fp64 with model.import, not fp8"),
    ]),
    ("gradients shorter than the products", job(
        training={"precision": "fp32", "gradient_precision": "bf16"}), [
        ("training.gradient_precision",
         "rounds away what the products give unless training.precision is bf16; must be fp32 with fp32, not bf16"),
    ]),
    ("short gradients, all of it wrong", job(
        parallelism={"pp": 2, "schedule": "zero-bubble", "microbatches": 4},
        training={"precision": "fp16", "gradient_precision": "bf16"}), [
        ("training.gradient_precision",
         "rounds away what the products give unless training.precision is bf16; must be fp32 with fp16, not bf16"),
        ("training.gradient_precision",
         "the schedule zero-bubble sums gradients in the format of the parameters it computes with, fp32 without "
         "ZeRO; must be fp32 with parallelism.zero 0, not bf16"),
    ]),
    ("warm-up and decay longer than the job", job(
        training={"optimizer": {"schedule": "wsd", "warmup_steps": 6, "decay_steps": 5}}), [
        ("training.optimizer.decay_steps", "must fit training.steps (10) together with warmup_steps, not 5 + 6"),
    ]),
    ("decay without wsd", job(training={"optimizer": {"decay_steps": 5}}), [
        ("training.optimizer.decay_steps", "belongs to the schedule wsd; must be 0 with cosine, not 5"),
    ]),
    ("learning rate, all of it wrong", job(
        training={"optimizer": {"warmup_steps": 11, "decay_steps": 5, "min_learning_rate": 0.1}}), [
        ("training.optimizer.decay_steps", "belongs to the schedule wsd; must be 0 with cosine, not 5"),
        ("training.optimizer.min_learning_rate", "must be at most training.optimizer.learning_rate (0.003), not 0.1"),
        ("training.optimizer.warmup_steps", "must be at most training.steps (10), not 11"),
    ]),
    ("offload to no directory", job(training={"offload": {"optimizer": "disk"}}), [
        ("training.offload.directory",
         "must name a directory on a local disk of every node when training.offload.optimizer is disk"),
    ]),
    ("a directory without offload to disk", job(training={"offload": {"optimizer": "host", "directory": "/scratch"}}), [
        ("training.offload.directory", "is for training.offload.optimizer disk; leave it out with host"),
    ]),
    ("offload to a relative directory", job(training={"offload": {"optimizer": "disk", "directory": "scratch"}}), [
        ("training.offload.directory", "must be an absolute path, not scratch"),
    ]),
    ("offload above a directory", job(training={"offload": {"optimizer": "disk", "directory": "/scratch/../etc"}}), [
        ("training.offload.directory", "must name a directory below the root, without `..`, not /scratch/../etc"),
    ]),
    ("a relative directory, and nothing offloaded", job(training={"offload": {"directory": "scratch"}}), [
        ("training.offload.directory", "is for training.offload.optimizer disk; leave it out with none"),
        ("training.offload.directory", "must be an absolute path, not scratch"),
    ]),
    # Model, data and checkpoints
    ("heads that share no key-value heads", job(model={"kv_heads": 3}), [
        ("model.kv_heads", "must divide model.heads: 4 heads cannot share 3 key-value heads evenly"),
    ]),
    ("hidden over heads", job(model={"hidden": 130}), [
        ("model.hidden", "must be a multiple of model.heads (4), not 130; or give model.head_size"),
    ]),
    ("an odd head", job(model={"head_size": 33}), [
        ("model.head_size", "gives heads of size 33; rotary positions need an even size"),
    ]),
    ("rotary frequencies out of order", job(
        model={"rope_scaling": {"kind": "llama3", "factor": 8, "low_frequency_factor": 4, "high_frequency_factor": 1}}
    ), [
        ("model.rope_scaling.low_frequency_factor", "must be less than high_frequency_factor (1.0), not 4.0"),
    ]),
    ("relative weights", job(model={"weights": "llama"}), [
        ("model.weights",
         "must be the absolute path, without `..`, of a directory that every node sees and that holds a "
         "config.json and safetensors, not llama"),
    ]),
    ("text and vocabulary", job(data={"source": "text.txt", "vocab_size": 512}), [
        ("data.source", "must be pydoc or the absolute path of a text file that every node sees, not text.txt"),
        ("data.vocab_size", "must be 256 with the tokenizer bytes, not 512; other sizes need the tokenizer bpe"),
    ]),
    ("checkpoints at the root", job(checkpoint={"directory": "/"}), [
        ("checkpoint.directory", "must name a directory below the root, without `..`, not /"),
    ]),
    # A model of one's own
    ("import without a function", job(model={"kind": "import"}), [
        ("model.import", "must name the function that gives the model, `module:function`, with model.kind import"),
    ]),
    ("a decoder with a function", job(model={"kind": "decoder", "import": "mine:build"}), [
        ("model.kind", "must be import, or left out, with model.import, not decoder"),
    ]),
    ("blocks and a plan of the decoder", job(model={"blocks": "layers", "tp_plan": {"up": "colwise"}}), [
        ("model.blocks", "says something of a model of your own: give model.import, or leave it out"),
        ("model.tp_plan", "says something of a model of your own: give model.import, or leave it out"),
    ]),
    ("the decoder's fields of an import", job(
        model={"import": "mine:build", "layers": 6, "moe": {"experts": 4, "top_k": 9}, "weights": "/llama"}), [
        ("model.layers",
         "is the decoder's; leave it out with model.import, whose function has model.options"),
        ("model.moe", "is the decoder's; leave it out with model.import, whose function has model.options"),
        ("model.weights",
         "is the decoder's; leave it out with model.import, whose function has model.options"),
    ]),
    ("names that are none", job(
        model={"import": "mine.build", "import_path": "code", "embed": ["a b"], "blocks": "trunk.", "head": ["trunk.0"],
            "tp_plan": {"layers.**.up": "colwise", "a..b": "rowwise"}}), [
        ("model.blocks", "must be the path of a module in the model, such as trunk.layers, not trunk."),
        ("model.embed.0", "must be the path of a module in the model, such as trunk.layers, not a b"),
        ("model.import", "must be `module:function`, such as my_models:build, not mine.build"),
        ("model.import_path",
         "must be the absolute path, without `..`, of a directory that every node sees, not code"),
        ("model.tp_plan",
         "must name paths of modules, such as layers.*.up with * for any one part, not layers.**.up"),
        ("model.tp_plan", "must name paths of modules, such as layers.*.up with * for any one part, not a..b"),
    ]),
    ("modules inside one another", job(
        model={"import": "mine:build", "embed": ["trunk"], "blocks": "trunk.layers", "head": ["norm", "norm"]}), [
        ("model.blocks", "lies in model.embed.0 (trunk), or the other way round: each module is called once"),
        ("model.head.1", "lies in model.head.0 (norm), or the other way round: each module is called once"),
    ]),
    ("half of what stands around the blocks", job(model={"import": "mine:build", "embed": ["embed"]}), [
        ("model.blocks", "must name the list of blocks between model.embed and model.head"),
        ("model.head", "must be given with model.embed: both say what stands around the blocks"),
    ]),
    ("an import of which nothing is declared, over every axis", job(
        model={"import": "mine:build"}, parallelism={"tp": 2, "pp": 2, "cp": 2, "ep": 2, "microbatches": 2}), [
        ("model.blocks", "must say what parallelism.pp 2 deals out: blocks, embed and head"),
        ("model.embed", "must say what parallelism.pp 2 deals out: blocks, embed and head"),
        ("model.head", "must say what parallelism.pp 2 deals out: blocks, embed and head"),
        ("model.tp_plan", "must say which modules parallelism.tp 2 splits, colwise or rowwise"),
        ("parallelism.cp", "needs the decoder's attention; must be 1 with model.import, not 2"),
        ("parallelism.ep", "needs the decoder's experts; must be 1 with model.import, not 2"),
        ("parallelism.sequence", "needs the decoder's norms; must be false with model.import and tp > 1"),
    ]),
    ("a plan that replicates all", job(
        model={"import": "mine:build", "tp_plan": {"*": "replicate"}}, parallelism={"tp": 3, "sequence": False}), [
        ("model.tp_plan", "must say which modules parallelism.tp 3 splits, colwise or rowwise"),
    ]),
    ("what works block by block, without blocks", job(
        model={"import": "mine:build"},
        training={"recompute": {"mode": "full"}, "offload": {"activations": True}, "optimizer": {"name": "muon"}}), [
        ("training.offload.activations",
         "works block by block; give model.blocks of the imported model, or leave it out"),
        ("training.optimizer.name", "needs the decoder's layers; must be adamw or sgd with model.import, not muon"),
        ("training.recompute.mode",
         "works block by block; give model.blocks of the imported model, or leave it out"),
    ]),
    ("what needs the decoder's attention", job(
        model={"import": "mine:build"}, training={"compile": True, "recompute": {"mode": "selective"}},
        data={"document_masks": True, "sources": [{"path": "/corpus.jsonl"}]}), [
        ("training.compile",
         "works block by block; give model.blocks of the imported model, or leave it out"),
        ("training.recompute.mode",
         "needs the decoder's layers; must be none or full with model.import, not selective"),
        ("data.document_masks",
         "needs the decoder's attention; must be false with model.import, which is given token ids alone"),
        ("data.document_masks", "needs training.compile false"),
    ]),
    ("an import over stages by hand", job(
        model={"import": "mine:build", "embed": ["embed"], "blocks": "layers", "head": ["head"]},
        parallelism={"pp": 2, "microbatches": 2, "layers_per_stage": [3]}), [
        ("parallelism.layers_per_stage", "must name 2 stages (pp 2 x 1 a rank), not 1"),
    ]),
    # Several sections at once
    ("a large plan on a small model", job(
        parallelism={"tp": 8, "pp": 8, "dp": 3, "cp": 3, "zero": 3, "dp_shard": 2, "microbatches": 4}), [
        ("parallelism.dp_shard", "must divide parallelism.dp (3), 2 does not"),
        ("parallelism.microbatches", "1f1b with 8 pipeline ranks needs at least 8 micro-batches, not 4"),
        ("parallelism.pp", "8 stages need at least as many layers, model.layers is 4"),
        ("parallelism.tp", "must divide model.heads (4), 8 does not"),
        ("parallelism.tp", "must divide model.kv_heads (2), 8 does not"),
        ("training.global_batch",
         "must be a multiple of parallelism.dp x parallelism.microbatches (3 x 4 = 12), not 16"),
        ("training.sequence_length",
         "must be a multiple of 2 x cp x tp = 48 (each context rank holds two chunks), not 128"),
    ]),
    ("a plan, its training and its checkpoints", job(
        model={"hidden": 130, "kv_heads": 3, "tied_embeddings": True},
        parallelism={"tp": 2, "pp": 2, "schedule": "zbv", "zero": 2, "reshard_after_forward": 2},
        training={"compile": True, "precision": "fp8", "recompute": {"mode": "full"},
            "optimizer": {"name": "muon", "warmup_steps": 20}},
        data={"source": "here"}, checkpoint={"directory": "there"}), [
        ("model.hidden", "must be a multiple of model.heads (4), not 130; or give model.head_size"),
        ("model.kv_heads", "must divide model.heads: 4 heads cannot share 3 key-value heads evenly"),
        ("model.tied_embeddings",
         "needs the embedding and the head on one stage; with 4 stages must be false (or parallelism.pp 1)"),
        ("parallelism.reshard_after_forward", "is a choice of parallelism.zero 3 alone; leave it out with zero 2"),
        ("parallelism.tp", "must divide model.kv_heads (3), 2 does not"),
        ("parallelism.tp", "needs whole matrices: parallelism.tp must be 1 with muon, not 2"),
        ("parallelism.virtual_stages", "must be 2 with zbv, which gives each rank a stage from either end, not 1"),
        ("parallelism.zero",
         "needs data or context ranks to shard over; parallelism.dp and cp are 1, so must be 0, not 2"),
        ("parallelism.zero", "needs whole matrices: parallelism.zero must be 0 with muon, not 2"),
        ("training.compile", "cannot split a compiled backward; must be false with the schedule zbv"),
        ("training.optimizer.warmup_steps", "must be at most training.steps (10), not 20"),
        ("training.precision",
         "cannot split the backward of an fp8 product, as the schedule zbv does; must be bf16, fp16, fp32 or fp64, "
         "not fp8"),
        ("training.recompute.mode",
         "must be none with the schedule zbv, whose split backward would compute everything twice, not full"),
        ("data.source", "must be pydoc or the absolute path of a text file that every node sees, not here"),
        ("checkpoint.directory", "must be an absolute path on storage that every node sees, not there"),
    ]),
    ("experts in a pipeline of shards", job(
        model={"moe": {"experts": 6, "top_k": 7}},
        parallelism={"pp": 3, "dp": 4, "zero": 3, "dp_shard": 3, "ep": 4, "schedule": "interleaved-1f1b",
            "microbatches": 7, "reshard_after_forward": 2}
    ), [
        ("model.moe.top_k", "must be at most model.moe.experts (6), not 7"),
        ("parallelism.dp_shard", "must divide parallelism.dp (4), 3 does not"),
        ("parallelism.ep", "must divide model.moe.experts (6), 4 does not"),
        ("parallelism.ep", "must divide dp_shard x cp x tp = 3 ranks, over which experts are spread; 4 does not"),
        ("parallelism.microbatches",
         "interleaved-1f1b deals them in 2 equal rounds, which 7 do not fill; a multiple of parallelism.pp (3) "
         "does"),
        ("parallelism.pp", "6 stages (3 x 2 virtual stages) need at least as many layers, model.layers is 4"),
        ("parallelism.reshard_after_forward",
         "must be true or false with a pipeline, which keeps parameters gathered all step, not 2"),
        ("parallelism.reshard_after_forward", "must be true or false with experts over parallelism.ep 4 ranks, not 2"),
        ("parallelism.virtual_stages",
         "must be at least 2 with interleaved-1f1b, not 1; with one stage a rank use 1f1b"),
        ("training.global_batch",
         "must be a multiple of parallelism.dp x parallelism.microbatches (4 x 7 = 28), not 16"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "wanted"), [i[1:] for i in IMPOSSIBLE], ids=[i[0] for i in IMPOSSIBLE])
def test_every_violation_is_found_and_no_other(document: dict[str, Any], wanted: Found) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(document)
    assert [(violation.field, violation.message) for violation in refused.value.violations] == wanted


@pytest.mark.parametrize(("document", "wanted"), [i[1:] for i in IMPOSSIBLE], ids=[i[0] for i in IMPOSSIBLE])
def test_the_value_given_is_the_value_shown(document: dict[str, Any], wanted: Found) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(document)
    for violation in refused.value.violations:
        found: Any = document
        for key in violation.field.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, bool | int | float | str):
            assert violation.value == found


def test_enough_of_them_and_enough_at_once() -> None:
    assert len(IMPOSSIBLE) >= 60
    assert sum(len(wanted) >= 3 for _, _, wanted in IMPOSSIBLE) >= 10
    assert len({field for _, _, wanted in IMPOSSIBLE for field, _ in wanted}) >= 25
