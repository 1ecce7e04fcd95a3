"""What a job has learned, read from its checkpoints by one process that is none of its ranks. Nothing is changed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from actors.checkpoint import Skipped, layout
from actors.checkpoint.peers import Peers
from actors.checkpoint.restore import Reader, UnusableError
from actors.training.interchange.weights import parameter_shapes
from actors.training.model.decoder import Decoder
from actors.training.model.moe import MoeFeedForward
from actors.training.precision import parameter_dtype
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import ModelSpec


class NoGoodCheckpointError(RuntimeError):
    """None of the checkpoints asked for is whole; `skipped` says what is wrong with each."""

    def __init__(self, directory: Path, skipped: Sequence[Skipped]) -> None:
        self.skipped = tuple(skipped)
        told = "; ".join(f"{one.name}: {one.reason}" for one in skipped)
        super().__init__(f"no good checkpoint in {directory}: {told or 'there is none'}")


@dataclass(frozen=True)
class Found:
    path: Path
    step: int
    skipped: tuple[Skipped, ...]
    """Newer ones that are damaged, newest first."""
    tokenizer: str | None
    """Identity of the tokenizer it was trained with; None in checkpoints of older versions."""


def find_checkpoint(directory: Path, *, step: int | None = None) -> Found:
    """The newest checkpoint below `directory` that is whole, of `step` if given. Every file of it is hashed.

    OSError when the directory cannot be listed.
    """
    names = layout.newest_first(path.name for path in directory.iterdir())
    reader = Reader(directory, Peers(rank=0, world_size=1, group=None), attempt="0", plan={})
    skipped: list[Skipped] = []
    for name in names:
        key = layout.parse_committed(name)
        if key is None or step not in (None, key[0]):
            continue
        try:
            manifest = reader.verify(name)
        except UnusableError as error:
            skipped.append(Skipped(name, error.reason))
            continue
        corpus = manifest.extras.get("corpus", {})
        return Found(directory / name, manifest.step, tuple(skipped), corpus.get("tokenizer"))
    raise NoGoodCheckpointError(directory, skipped)


class TrainedWeights:
    """The parameters in one checkpoint, read when asked for."""

    def __init__(self, spec: JobSpec, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.dtype = parameter_dtype(spec.training.precision)
        self.shapes = parameter_shapes(spec.model, spec.data.vocab_size)

    def read(self, names: Sequence[str]) -> Mapping[str, Tensor]:
        """Whole parameters by their names in the whole model, on the CPU."""
        values = {name: torch.empty(self.shapes[name], dtype=self.dtype) for name in names}
        self.read_into(values)
        return values

    def read_into(self, values: Mapping[str, Tensor]) -> None:
        """Fills CPU tensors.

        NoGoodCheckpointError when one is not in the checkpoint or has another shape there, or when a running job
        has deleted the checkpoint.
        """
        self._refuse_deleted()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            try:
                load({"model": dict(values)}, storage_reader=FileSystemReader(self._checkpoint), no_dist=True)
            except (CheckpointException, OSError) as error:
                self._refuse_deleted()
                reason = " ".join(str(error).split())
                raise NoGoodCheckpointError(
                    self._checkpoint.parent, [Skipped(self._checkpoint.name, reason)]
                ) from None

    def _refuse_deleted(self) -> None:
        if not self._checkpoint.is_dir():
            reason = "deleted for newer ones meanwhile (checkpoint.keep); run the command again"
            raise NoGoodCheckpointError(self._checkpoint.parent, [Skipped(self._checkpoint.name, reason)])


def load_trained(spec: JobSpec, checkpoint: Path, device: torch.device) -> Decoder:
    """The whole model on `device`, ready to predict. Full experts drop no tokens: that is for training alone."""
    weights = TrainedWeights(spec, checkpoint)
    positions = torch.arange(spec.training.sequence_length)
    with torch.device("meta"):
        decoder = Decoder(
            _dropless(spec.model), vocab_size=spec.data.vocab_size, positions=len(positions)
        ).to(weights.dtype)
    decoder.to_empty(device="cpu")
    decoder.tie()
    decoder.refill_buffers(torch.device("cpu"), weights.dtype, positions)
    values = {name: parameter.detach() for name, parameter in decoder.named_parameters()}
    for index, layer in decoder.layers.items():
        moe = layer.get_submodule("feed_forward")
        if isinstance(moe, MoeFeedForward) and moe.spec.balance == "bias":
            values[f"layers.{index}.feed_forward.bias"] = moe.bias
    weights.read_into(values)
    return decoder.to(device).eval()


def _dropless(model: ModelSpec) -> ModelSpec:
    if model.moe is None:
        return model
    return model.model_copy(update={"moe": model.moe.model_copy(update={"capacity_factor": None})})
