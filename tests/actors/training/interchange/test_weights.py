"""`model.weights`: ranks read their slices and nothing else, training goes on from them, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import foreign_model, own_model
from plans import assemble, changed, demo_job, run_engine, shards, train_job
from safetensors.torch import load_file, save_file

from actors.training.interchange.config import read_config
from actors.training.interchange.directory import INDEX_NAME, SINGLE_NAME, TensorDirectory
from actors.training.interchange.failure import InterchangeError
from actors.training.interchange.weights import load_weights
from actors.training.model.decoder import Decoder
from actors.training.parallel.layout import ParameterLayout
from orchestrator.spec import JobSpec

TP_PP = {"tp": 2, "pp": 2, "microbatches": 2}
EXPERTS = {"tp": 2, "dp": 2, "ep": 2, "zero": 3, "microbatches": 1}


def job(directory: Path, plan: dict[str, Any], **training: Any) -> JobSpec:
    document = read_config(directory).model.model_dump(mode="json") | {"weights": str(directory)}
    sizes = {"steps": 3, "global_batch": 4, "sequence_length": 32, "eval_sequences": 4}
    return changed(demo_job(parallelism=plan, **(sizes | training)), model=document)


@pytest.mark.parametrize(("kind", "plan"), [("qwen2", TP_PP), ("qwen2-moe", EXPERTS)])
def test_each_rank_reads_its_slices_alone(
    kind: str, plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_model(kind).save_pretrained(tmp_path, max_shard_size="40KB")
    assert (tmp_path / INDEX_NAME).exists()
    read = TensorDirectory.read
    values: list[int] = []

    def counted(self: TensorDirectory, *arguments: Any) -> torch.Tensor:
        found = read(self, *arguments)
        values.append(found.numel())
        return found

    monkeypatch.setattr(TensorDirectory, "read", counted)
    answers = run_engine(job(tmp_path, plan), lambda engine, rank: (shards(engine), sum(values)))
    for held, count in answers:
        assert count == sum(shard.values.numel() for shard in held.values())
    whole, _ = own_model(tmp_path, torch.float32)
    found = assemble([held for held, _ in answers])
    assert found.keys() == dict(whole.named_parameters()).keys()
    assert all(torch.equal(found[name], parameter) for name, parameter in whole.named_parameters())


def test_training_goes_on_from_them_alike_under_any_plan(tmp_path: Path) -> None:
    """With experts and a gated shared expert, in float64: to the last digits that sums in another order leave."""
    foreign_model("qwen2-moe").save_pretrained(tmp_path / "model")
    alone = train_job(job(tmp_path / "model", {}, precision="fp64"), tmp_path / "alone")[0]
    ranks = train_job(job(tmp_path / "model", EXPERTS, precision="fp64"), tmp_path / "ranks")[0]
    for name in ("loss", "grad_norm"):
        assert [s[name] for s in ranks.steps] == pytest.approx([s[name] for s in alone.steps], rel=1e-9)
    random = train_job(changed(job(tmp_path / "model", {}, steps=1), model={"weights": None}), tmp_path / "r")
    assert abs(random[0].steps[0]["loss"] - alone.steps[0]["loss"]) > 0.1


def load(directory: Path, change: Callable[[dict[str, Any]], None] = lambda model: None) -> None:
    found = read_config(directory)
    document = found.model.model_dump(mode="json")
    change(document)
    part = Decoder(type(found.model).model_validate(document), vocab_size=256, positions=8)
    load_weights(
        part,
        {n: ParameterLayout(tuple(p.shape)) for n, p in part.named_parameters()},
        directory,
        vocab_size=256,
    )


def test_another_model_is_refused_with_every_difference(tmp_path: Path) -> None:
    foreign_model("qwen3-moe").save_pretrained(tmp_path)

    def change(model: dict[str, Any]) -> None:
        model |= {"layers": 3, "kv_heads": 4, "head_norm": False, "rope_theta": 5e5}
        model["moe"] |= {"experts": 8, "dense_layers": 0, "normalize_weights": False}
        model["moe"] |= {"balance": "bias", "capacity_factor": 2.0}  # choices of training

    with pytest.raises(InterchangeError) as refused:
        load(tmp_path, change)
    assert set(refused.value.reasons) == {
        "model.layers is 3, the checkpoint has 2",
        "model.kv_heads is 4, the checkpoint has 2",
        "model.head_norm is False, the checkpoint has True",
        "model.rope_theta is 500000.0, the checkpoint has 10000.0",
        "model.ffn_hidden is None, the checkpoint has 48",
        "model.moe.experts is 8, the checkpoint has 4",
        "model.moe.dense_layers is 0, the checkpoint has 1",
        "model.moe.normalize_weights is False, the checkpoint has True",
    }


def test_tensors_that_do_not_fit_are_named_together(tmp_path: Path) -> None:
    foreign_model("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / SINGLE_NAME)
    del tensors["model.norm.weight"]
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(8, 32)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(48, 32, dtype=torch.int8)
    tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(48, 32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    save_file(tensors, tmp_path / SINGLE_NAME)
    with pytest.raises(InterchangeError) as refused:
        load(tmp_path)
    assert list(refused.value.reasons) == [
        "model.norm.weight is missing",
        "model.layers.2.mlp.up_proj.weight belongs to no part of the model",
        "model.layers.0.self_attn.q_proj.weight has the shape [8, 32], must be [32, 32]",
        "model.layers.1.mlp.up_proj.weight is stored as I8, must be one of F64, F32, F16, BF16",
    ]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    foreign_model("llama").save_pretrained(tmp_path)
    content = (tmp_path / SINGLE_NAME).read_bytes()
    (tmp_path / SINGLE_NAME).write_bytes(content[: len(content) // 2])
    with pytest.raises(InterchangeError, match=r"model\.safetensors is damaged"):
        load(tmp_path)
    (tmp_path / SINGLE_NAME).rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InterchangeError, match=r"pytorch_model\.bin is of a format that is not read"):
        load(tmp_path)
    weight_map = {"a": "one.safetensors", "b": "../two.safetensors"}
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(InterchangeError) as refused:
        load(tmp_path)
    assert refused.value.reasons == (
        "'../two.safetensors' is no plain file name",
        "one.safetensors is not there",
    )
    with pytest.raises(InterchangeError, match="cannot be read on this machine"):
        read_config(tmp_path / "nowhere")
