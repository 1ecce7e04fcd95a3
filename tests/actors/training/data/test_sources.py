"""Sources in training: raw and prepared alike, under any plan; splits, masks and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gang import RankFailedError, run_ranks
from plans import demo_job, run_engine

from actors.training.data import prepare
from actors.training.data.blend import Blend
from actors.training.data.corpus import Corpus, share_corpus
from actors.training.data.documents import document_hash
from actors.training.data.identity import DataIdentity
from actors.training.data.order import SequenceOrder, held_back_sequences
from orchestrator.spec.sections import DataSpec, ModelSpec

TEXTS = [f"the cat {i} sat on the mat {i * 7}; größe " * (1 + i % 4) for i in range(150)]
OTHERS = [f"0123 {i} 4567 " * 6 for i in range(80)]


def jsonl(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.jsonl and b.jsonl, and the tokens of each."""
    made = tmp_path_factory.mktemp("sources")
    for name, texts in (("a", TEXTS), ("b", OTHERS)):
        source = jsonl(made / f"{name}.jsonl", texts)
        prepare.prepare(prepare.Request((source,), made / name))
    return made


def spec(*paths: Path | str, weights: tuple[float, ...] = (), **options: Any) -> DataSpec:
    sources = [
        {"path": str(path), "weight": w} for path, w in zip(paths, weights or [1.0] * len(paths), strict=True)
    ]
    return DataSpec.model_validate({"sources": sources, "holdout_fraction": 0.2, **options})


def shared(data: DataSpec, world: int = 1, *, length: int = 16) -> list[Corpus]:
    """The corpus of each rank, read there."""

    def program(rank: int, store: Any) -> Corpus:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=world)
        corpus = share_corpus(data, sequence_length=length, rank=rank)
        return read(corpus)

    return run_ranks(world, program)


def read(corpus: Corpus) -> Any:
    """Everything in it, as lists of bytes by source."""

    def content(part: Any) -> list[bytes]:
        assert isinstance(part, Blend)
        return [s.read(0, len(s)).astype(np.uint8).tobytes() for s in part.streams]

    return content(corpus.training), content(corpus.held_back), corpus.end_of_document


def ended(texts: list[str]) -> bytes:
    return b"".join(text.encode() + b"\xff" for text in texts)


def test_the_end_of_each_source_is_held_back(folder: Path) -> None:
    ((training, held_back, end),) = shared(spec(folder / "a.jsonl", folder / "b.jsonl"))
    assert end == 255
    for texts, first, second in zip((TEXTS, OTHERS), training, held_back, strict=True):
        assert first + second == ended(texts)
        characters = sum(map(len, texts))
        plain = second.replace(b"\xff", b"").decode()
        assert len(plain) == round(0.2 * characters)


def test_documents_are_held_back_by_their_hash_alone(folder: Path, tmp_path: Path) -> None:
    held = [text for text in TEXTS if document_hash(text) < 0.2 * 2**64]
    kept = [text for text in TEXTS if text not in held]
    assert 10 < len(held) < 60
    turned = jsonl(tmp_path / "turned.jsonl", TEXTS[::-1])
    for path, order in ((folder / "a.jsonl", 1), (folder / "a", 1), (turned, -1)):
        ((training, held_back, _),) = shared(spec(path, holdout="hash"))
        assert training == [ended(kept[::order])]
        assert held_back == [ended(held[::order])]


def test_every_rank_has_the_same_whatever_is_raw_or_prepared(folder: Path) -> None:
    paths = [(folder / a, folder / b) for a in ("a.jsonl", "a") for b in ("b.jsonl", "b")]
    found = [rank for pair in paths for rank in shared(spec(*pair, holdout="hash"), world=2)]
    assert all(rank == found[0] for rank in found)


def test_fewer_files_than_ranks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(TEXTS))
    ranks = shared(spec(path), world=4)
    assert all(rank == ranks[0] for rank in ranks)
    assert ranks[0][0][0] + ranks[0][1][0] == ended(["".join(TEXTS)])


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("gone.jsonl", r"data\.sources\.0\.path: no file '.*gone\.jsonl'"),
        ("empty.jsonl", r"data\.sources\.0\.path: '.*empty\.jsonl' holds no document"),
        (
            "short.jsonl",
            r"data\.sources\.0\.path: '.*short\.jsonl' is too short: its training part has 7 tokens",
        ),
        ("bad.jsonl", r"data\.sources\.0\.path: .*bad\.jsonl, line 2 is no JSON"),
    ],
)
def test_what_is_wrong_is_raised_by_every_rank(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    jsonl(tmp_path / "short.jsonl", ["abcd", "e"])
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{\n')

    def program(rank: int, store: Any) -> str:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=2)
        with pytest.raises(ValueError, match=problem) as raised:
            share_corpus(spec(tmp_path / path, holdout_fraction=0.1), sequence_length=16, rank=rank)
        # The supervisor knows by the name of the type that trying again is no use.
        assert type(raised.value) is ValueError
        return str(raised.value)

    first, second = run_ranks(2, program)
    assert first == second


@pytest.mark.parametrize(
    ("other", "what"), [("b", "different tokens"), ("nowhere", "prepared tokens and none")]
)
def test_a_rank_that_sees_other_tokens_is_named(folder: Path, tmp_path: Path, other: str, what: str) -> None:
    def program(rank: int, store: Any) -> None:
        # As two nodes with different directories under one name.
        mine = tmp_path / f"{rank}"
        mine.mkdir()
        (mine / "tokens").symlink_to(folder / ("a" if rank == 0 else other))
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=2)
        share_corpus(spec(mine / "tokens"), sequence_length=16, rank=rank)

    with pytest.raises(RankFailedError, match=f"ValueError: data.sources.0.path: ranks 0 and 1 see {what}"):
        run_ranks(2, program)


def test_bad_lines_that_are_skipped_are_counted_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    jsonl(path, TEXTS)
    with path.open("a") as stream:
        stream.write("{\n[]\n")
    ((training, held_back, _),) = shared(spec(path, on_bad_line="skip"))
    assert training[0] + held_back[0] == ended(TEXTS)
    assert (
        f"data: 2 lines left out, the first: data.sources.0.path: {path}, line 151 is no JSON"
        in capfd.readouterr().out
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"tokenizer": "bpe", "vocab_size": 300},
            "data.tokenizer: is bpe, but the tokens of data.sources.0.path were",
        ),
        (
            {"tokenizer": "file", "tokenizer_file": "/nowhere.json"},
            "data.tokenizer_file: tokenizer '/nowhere.json'",
        ),
    ],
)
def test_another_tokenizer_than_the_tokens_is_refused(folder: Path, options: Any, problem: str) -> None:
    with pytest.raises(RankFailedError, match=problem):
        shared(spec(folder / "a", **options))


def test_tokens_of_a_bpe_bring_their_tokenizer(folder: Path, tmp_path: Path) -> None:
    prepare.prepare(
        prepare.Request((str(folder / "a.jsonl"),), tmp_path / "out", tokenizer="bpe", vocab_size=300)
    )
    by_name = spec(tmp_path / "out", tokenizer="bpe", vocab_size=300)
    by_file = spec(
        tmp_path / "out",
        tokenizer="file",
        tokenizer_file=str(tmp_path / "out" / "tokenizer.json"),
        vocab_size=300,
    )
    assert shared(by_name) == shared(by_file)
    with pytest.raises(RankFailedError, match=r"data\.vocab_size: the tokenizer of .* at least 300, not 280"):
        shared(spec(tmp_path / "out", tokenizer="bpe", vocab_size=280))
    with pytest.raises(
        RankFailedError, match=r"data\.sources\.1\.path: has another tokenizer .* one tokenizer"
    ):
        shared(spec(tmp_path / "out", folder / "a", tokenizer="bpe", vocab_size=300))


def losses(data: dict[str, Any], *, steps: int = 4, **plan: Any) -> list[float]:
    job = demo_job(
        parallelism={"microbatches": 2, **plan},
        data={"source": "pydoc", **data},
        precision="fp64",
        steps=steps,
        global_batch=8,
        sequence_length=32,
        eval_sequences=8,
    )

    def body(engine: Any, rank: int) -> list[float]:
        found = [engine.train_step(step, stop=False).loss for step in range(steps)]
        evaluation = engine.evaluate()
        return [*found, evaluation.loss, evaluation.unigram_loss]

    ranks = run_engine(job, body)
    assert all(rank == ranks[0] for rank in ranks)
    return list(ranks[0])


def sources(*paths: Path, weights: tuple[float, ...], **options: Any) -> dict[str, Any]:
    entries = [{"path": str(path), "weight": w} for path, w in zip(paths, weights, strict=True)]
    return {"sources": entries, "holdout": "hash", "holdout_fraction": 0.2, **options}


def test_a_blend_trains_alike_raw_or_prepared_under_any_plan(folder: Path) -> None:
    raw = sources(folder / "a.jsonl", folder / "b.jsonl", weights=(3, 1))
    prepared = sources(folder / "a", folder / "b", weights=(3, 1))
    wanted = losses(raw)
    assert losses(prepared) == wanted
    for plan in ({"dp": 2}, {"tp": 2, "pp": 2}, {"cp": 2}):
        assert losses(prepared, **plan) == pytest.approx(wanted, rel=1e-9, abs=0)


def test_masked_documents_train_alike_under_any_plan(folder: Path) -> None:
    masked = sources(folder / "a", weights=(1,), document_masks=True)
    wanted = losses(masked)
    assert wanted != pytest.approx(losses(masked | {"document_masks": False}), rel=1e-6)
    for plan in ({"dp": 2}, {"tp": 2}, {"dp": 2, "zero": 3}, {"microbatches": 1}):
        assert losses(masked, **plan) == pytest.approx(wanted, rel=1e-9, abs=0)


@pytest.mark.parametrize("mode", ["selective", "full"])
def test_masked_documents_and_recompute(folder: Path, mode: str) -> None:
    masked = sources(folder / "a", weights=(1,), document_masks=True)
    job = {"recompute": {"mode": mode}}
    from plans import changed

    spec_ = demo_job(
        parallelism={"microbatches": 2}, data={"source": "pydoc", **masked}, precision="fp64", steps=3,
        global_batch=8, sequence_length=32,
    )  # fmt: skip

    def body(engine: Any, rank: int) -> list[float]:
        return [engine.train_step(step, stop=False).loss for step in range(3)]

    assert run_engine(changed(spec_, training=job), body) == run_engine(spec_, body)


def test_attention_inside_documents_is_attention_to_each_alone() -> None:
    from actors.training.model.decoder import Decoder
    from actors.training.model.document_attention import mask_documents

    torch.manual_seed(3)
    end = 9
    model = Decoder(
        ModelSpec(layers=2, hidden=32, heads=4, kv_heads=2, ffn_hidden=64), vocab_size=10, positions=12
    )
    model = model.double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.refill_buffers(torch.device("cpu"), torch.float64, torch.arange(12))
    packed = torch.tensor(
        [[1, 2, 3, end, 4, 5, end, 6, 7, 8, 1, 2], [end, end, 1, 2, 3, 4, 5, 6, 7, 8, 1, end]]
    )
    parts = [[slice(0, 4), slice(4, 7), slice(7, 12)], [slice(0, 1), slice(1, 2), slice(2, 12)]]
    with torch.no_grad():
        alone = [
            torch.cat([padded(model, packed[row, part]) for part in cuts]) for row, cuts in enumerate(parts)
        ]
        unmasked = model(packed)
        mask_documents(model, end=end)
        masked = model(packed)
    assert torch.allclose(masked, torch.stack(alone), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(masked, unmasked)


def padded(model: Any, document: torch.Tensor) -> torch.Tensor:
    """Logits of one document at the beginning of a sequence; causal attention does not see what comes after."""
    sequence = torch.zeros(1, 12, dtype=torch.long)
    sequence[0, : len(document)] = document
    return model(sequence)[0, : len(document)]


def test_a_resumed_order_needs_nothing_but_the_step(folder: Path) -> None:
    def program(rank: int, store: Any) -> Any:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=1)
        data = spec(folder / "a", folder / "b", weights=(0.7, 0.3))
        corpus = share_corpus(data, sequence_length=8, rank=rank)

        def order() -> SequenceOrder:
            return SequenceOrder(corpus.training, sequence_length=8, global_batch=6, seed=1)

        steady = order()
        batches = [steady.batch(step, replica=0, replicas=1)[0] for step in range(400)]
        fresh = all(torch.equal(order().batch(s, replica=0, replicas=1)[0], batches[s]) for s in (0, 77, 399))
        held, _ = held_back_sequences(corpus.held_back, sequence_length=8, at_most=10)
        return fresh, held.shape

    assert run_ranks(1, program) == [(True, torch.Size([10, 8]))]


def test_data_is_known_again_by_its_identity(folder: Path, tmp_path: Path) -> None:
    def identities(*paths: Path, world: int = 1) -> list[DataIdentity]:
        def program(rank: int, store: Any) -> DataIdentity:
            dist.init_process_group("gloo", store=store(), rank=rank, world_size=world)
            return share_corpus(spec(*paths), sequence_length=16, rank=rank).identity

        return run_ranks(world, program)

    mixed = (folder / "a", folder / "b.jsonl")
    (before,) = identities(*mixed)
    assert identities(*mixed, world=2) == [before, before]
    before.require(json.loads(json.dumps(before.as_json())), spec(*mixed))
    swapped = jsonl(tmp_path / "b.jsonl", [OTHERS[1], OTHERS[0], *OTHERS[2:]])
    (after,) = identities(folder / "a", swapped)
    assert after.tokenizer == before.tokenizer == "bytes"
    with pytest.raises(ValueError, match=r"data\.sources: the content of the sources is another"):
        after.require(before.as_json(), spec(*mixed))
