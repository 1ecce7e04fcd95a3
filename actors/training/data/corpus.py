"""The tokens of a job: a training part and, held back from it, a part that is never trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from actors.training.data.blend import Blend
from actors.training.data.identity import DataIdentity, digest_tokens
from actors.training.data.sources import open_blend
from actors.training.data.text import read_text
from actors.training.data.tokenizer import build_tokenizer, check_vocabulary
from orchestrator.spec.sections import DataSpec


@dataclass(frozen=True)
class Corpus:
    training: Tensor | Blend
    """Token ids, int32, on the CPU; or streams of several sources."""
    held_back: Tensor | Blend
    identity: DataIdentity
    end_of_document: int | None = None
    """Id of the token that ends a document; None where there is only one."""


def build_corpus(spec: DataSpec, *, sequence_length: int) -> Corpus:
    """Reads, splits and tokenizes `data.source`. ValueError when there is not enough text for one sequence of each
    part."""
    training_text, held_back_text = split_text(read_text(spec.source), spec)
    tokenizer = build_tokenizer(spec, training_text)
    check_vocabulary(tokenizer.vocab_size, spec, what="the tokenizer")
    training, held_back = tokenizer.encode(training_text), tokenizer.encode(held_back_text)
    needed = sequence_length + 1
    for part, ids in (("training", training), ("held-back", held_back)):
        if len(ids) < needed:
            raise ValueError(
                f"data.source: {spec.source!r} is too short: its {part} part has {len(ids)} tokens, at least {needed} "
                f"are needed (training.sequence_length {sequence_length} and one more to predict); give a longer text, "
                "shorter sequences or another data.holdout_fraction"
            )
    identity = DataIdentity(tokenizer.identity, digest_tokens((training, held_back)))
    return Corpus(torch.from_numpy(training), torch.from_numpy(held_back), identity)


def split_text(text: str, spec: DataSpec) -> tuple[str, str]:
    """(training part, held-back part): its end."""
    cut = len(text) - round(len(text) * spec.holdout_fraction)
    return text[:cut], text[cut:]


def share_corpus(spec: DataSpec, *, sequence_length: int, rank: int) -> Corpus:
    """The corpus, the same on every rank; every rank raises the same error. Collective over the world.

    Text is read and tokenized by rank 0, and its tokens are sent to the others; prepared tokens are mapped by each.
    """
    if spec.sources:
        opened = open_blend(spec, sequence_length=sequence_length, rank=rank)
        return Corpus(opened.training, opened.held_back, opened.identity, opened.end_of_document)
    lengths: list[object] = [None]
    corpus: Corpus | None = None
    failure: Exception | None = None
    if rank == 0:
        try:
            corpus = build_corpus(spec, sequence_length=sequence_length)
            lengths = [(len(_tensor(corpus.training)), len(_tensor(corpus.held_back)), corpus.identity)]
        except Exception as error:
            failure, lengths = error, [str(error)]
    if dist.get_world_size() == 1:
        if failure is not None:
            raise failure
        assert corpus is not None
        return corpus
    dist.broadcast_object_list(lengths, src=0, device=torch.device("cpu"))
    if failure is not None:
        raise failure
    if isinstance(lengths[0], str):
        raise ValueError(lengths[0])
    assert isinstance(lengths[0], tuple)
    *sizes, identity = lengths[0]
    tokens = (
        torch.cat((_tensor(corpus.training), _tensor(corpus.held_back)))
        if corpus
        else torch.empty(sum(sizes), dtype=torch.int32)
    )
    dist.broadcast(tokens, src=0)
    training, held_back = torch.split(tokens, sizes)
    return Corpus(training, held_back, identity)


def _tensor(part: Tensor | Blend) -> Tensor:
    assert isinstance(part, Tensor), "data.source is one text"
    return part


def unigram_loss(corpus: Corpus, targets: Tensor, *, vocab_size: int) -> float:
    """Mean loss in nats of predicting `targets` from the frequencies of the training part alone, each count plus one
    (Laplace): what a model reaches that has learned no order."""
    if isinstance(corpus.training, Blend):
        log_probability = np.log(corpus.training.frequencies(vocab_size))
    else:
        counts = np.bincount(corpus.training.numpy(), minlength=vocab_size).astype(np.float64) + 1.0
        log_probability = np.log(counts / counts.sum())
    return float(-log_probability[targets.flatten().numpy()].mean())
