"""`model.import`: a module of the user's own, built alike on every rank and checked before anything is trained.

Its parameters begin as its own code makes them, under a generator that the job's seed decides: every rank builds the
whole module in host memory and keeps its part, so no plan changes them. What is wrong with it is a ValueError that
names every reason.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from actors.training.model.dry_run import DryRun, dry_run, step_flops, without_gradient
from actors.training.model.part import Part
from actors.training.seeds import derive
from orchestrator.spec.sections import ModelSpec

LISTED = 8
"""Names that a reason spells out."""
NOT_THEIRS = (
    *(str(Path(str(module.__file__)).parent) for module in (torch, importlib)),
    str(Path(__file__).parent),
    "<",
)
"""How paths of code begin that is not the user's: torch's, Python's import, our own."""


def build_module(model: ModelSpec, *, seed: int) -> nn.Module:
    """What the function of `model.import` gives. Its random numbers follow from `seed` alone."""
    function = _function(model)
    torch.manual_seed(derive(seed, "model"))
    try:
        module = function(copy.deepcopy(model.options))
    except (Exception, SystemExit) as error:
        raise ValueError(f"model.import: {model.function} raised {_told(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"model.import: {model.function} gave a {type(module).__name__}, must give a torch.nn.Module"
        )
    return module


def _function(model: ModelSpec) -> Callable[[dict[str, Any]], object]:
    assert model.function is not None
    name, _, attribute = model.function.partition(":")
    where = "installed, or on PYTHONPATH"
    if model.import_path is not None:
        if not Path(model.import_path).is_dir():
            raise ValueError(f"model.import_path: {model.import_path} is no directory on this rank's node")
        where = f"in {model.import_path}, {where}"
        sys.path.insert(0, model.import_path)
    importlib.invalidate_caches()  # this process was forked from an older one
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"model.import: importing {name} raised {_told(error)}") from error
        raise ValueError(
            f"model.import: there is no module {error.name} on this rank's node; it must be {where} there"
        ) from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"model.import: importing {name} raised {_told(error)}") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        what = "has nothing named" if found is None else "has no function, but something else, named"
        raise ValueError(f"model.import: {name} ({getattr(module, '__file__', None)}) {what} {attribute}")
    function: Callable[[dict[str, Any]], object] = found
    return function


def _told(error: BaseException) -> str:
    """Kind and words of an error and its place in the user's code, on one line."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(NOT_THEIRS)
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def digest(module: nn.Module) -> int:
    """55 bits that follow from the names and values of all parameters and buffers."""
    found = hashlib.sha256()
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(found.digest()[:7], "little") >> 1


class Stage(nn.Module):
    """Some modules of another one, under the names they have there, called one after the other."""

    def __init__(self, module: nn.Module, paths: Sequence[str], dtype: torch.dtype | None = None) -> None:
        """`dtype`: format of the result; None: as it comes."""
        super().__init__()
        self._dtype = dtype
        self._order = list(paths)
        for path in paths:
            *outer, last = path.split(".")
            inside: nn.Module = self
            for name in outer:
                if name not in dict(inside.named_children()):
                    inside.add_module(name, nn.Module())
                inside = inside.get_submodule(name)
            inside.add_module(last, module.get_submodule(path))

    def forward(self, x: Tensor) -> Tensor:
        for path in self._order:
            x = self.get_submodule(path)(x)
        if self._dtype is not None:
            x = x.to(self._dtype).contiguous()
        if torch.is_grad_enabled() and not x.requires_grad:
            # All that is before it is frozen, and torch's schedules want a backward of every stage: this one ends here.
            x = x.detach().requires_grad_()
        return x


class ImportedModel:
    """A built module and what the job file says of its inside."""

    def __init__(
        self,
        model: ModelSpec,
        *,
        seed: int,
        dtype: torch.dtype,
        tokens: Tensor,
        vocab_size: int,
    ) -> None:
        """`tokens`: ids of a micro-batch, on the meta device. ValueError with all that is wrong."""
        self.spec = model
        self.module = build_module(model, seed=seed)
        self.blocks: dict[str, nn.Module] = {}
        """By path, in the order they are called."""
        self.hidden: Tensor | None = None
        """What passes between blocks, on the meta device; None where it is not known what stands around them."""
        self._refuse(list(self._wrong_values()) + list(self._wrong_paths()))
        self.module.cpu()
        for parameter in self.module.parameters():
            # Optimizers on CPUs take value and gradient in the order of memory, and ZeRO shards no other layout.
            parameter.data = parameter.data.contiguous()
        self.digest = digest(self.module)
        self.module.to(dtype).train()
        self._refuse(list(self._wrong_run(tokens, vocab_size)))
        self.flops_per_token = step_flops(self.module, tokens) / tokens.numel()

    def whole(self) -> Part:
        """The module itself, with its own forward."""
        return Part(self.module, dict(enumerate(self.blocks.values())))

    def stage(self, blocks: range, *, embeds: bool, predicts: bool, dtype: torch.dtype) -> Part:
        """The modules of a pipeline stage; its results have the format `dtype`."""
        chosen = list(self.blocks)[blocks.start : blocks.stop]
        paths = [*(self.spec.embed if embeds else ()), *chosen, *(self.spec.head if predicts else ())]
        stage = Stage(self.module, paths, dtype)
        return Part(
            stage, {i: self.module.get_submodule(path) for i, path in zip(blocks, chosen, strict=True)}
        )

    def sizes(self) -> tuple[list[int], tuple[int, int]]:
        """Parameters of each block, and of what stands before and after them."""
        before, after = (
            sum(_size(self.module.get_submodule(path)) for path in paths)
            for paths in (self.spec.embed, self.spec.head)
        )
        return [_size(block) for block in self.blocks.values()], (before, after)

    def refuse_shared(self, *, stages: bool) -> None:
        """A parameter may not lie in two units of ZeRO; with `stages` not in two of embed, blocks and head either."""
        units = [*self.blocks, *((*self.spec.embed, *self.spec.head) if stages else ())]

        def unit(name: str) -> str:
            return next((path for path in units if name.startswith(f"{path}.")), "")

        owners: dict[int, str] = {}
        reasons = []
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            first = owners.setdefault(id(parameter), name)
            if unit(first) != unit(name):
                where = "embed, blocks and head" if stages else "blocks and the rest"
                reasons.append(f"{name} is {first} too: with this plan {where} may share no parameter")
        self._refuse(reasons)

    def _refuse(self, reasons: list[str]) -> None:
        if reasons:
            told = "; ".join(reasons[:LISTED]) + (
                f"; and {len(reasons) - LISTED} more" * (len(reasons) > LISTED)
            )
            raise ValueError(
                f"model.import: {self.spec.function} gave a module that cannot be trained: {told}"
            )

    def _wrong_values(self) -> Iterator[str]:
        named = dict(self.module.named_parameters())
        if not named:
            yield "it has no parameters"
        elif not any(parameter.requires_grad for parameter in named.values()):
            yield "none of its parameters requires a gradient, so there is nothing to train"
        for name, parameter in named.items():
            if parameter.is_meta:
                yield f"{name} is on the meta device, without values"
            elif not parameter.is_floating_point():
                yield f"{name} is of {parameter.dtype}, must be of a float format"
            elif parameter.dim() == 0:
                yield f"{name} is a single number; make it a vector of one"
        for name, buffer in self.module.named_buffers():
            if buffer.is_meta:
                yield f"{name} is on the meta device, without values"
        for name, module in self.module.named_modules():
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
                yield f"{name} keeps running statistics, which are no parameters and depend on the plan"

    def _wrong_paths(self) -> Iterator[str]:
        for field, paths in (("embed", self.spec.embed), ("head", self.spec.head)):
            for i, name in enumerate(paths):
                if _submodule(self.module, name) is None:
                    yield f"model.{field}.{i}: it has no module {name}"
        path = self.spec.blocks
        if path is None:
            return
        found = _submodule(self.module, path)
        if not isinstance(found, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            what = "it has no module" if found is None else f"a {type(found).__name__} is no list of blocks:"
            yield f"model.blocks: {what} {path}; must be a ModuleList, Sequential or ModuleDict"
            return
        # Not `named_children`, which names a module once however often it is there.
        self.blocks = {f"{path}.{name}": block for name, block in found._modules.items() if block is not None}
        if not self.blocks:
            yield f"model.blocks: {path} is empty"
        if len({id(block) for block in self.blocks.values()}) < len(self.blocks):
            yield f"model.blocks: {path} holds one block several times"

    def _wrong_run(self, tokens: Tensor, vocab_size: int) -> Iterator[str]:
        try:
            run = dry_run(self.module, tokens)
        except Exception as error:
            yield f"on the meta device its forward raised {_told(error)}"
            return
        wanted = (*tokens.shape, vocab_size)
        if not isinstance(run.output, Tensor) or tuple(run.output.shape) != wanted:
            yield f"it gives {_described(run.output)} for token ids {list(tokens.shape)}, must give {list(wanted)}"
            return
        unused = without_gradient(run) if run.output.requires_grad else list(run.parameters)
        if unused:
            yield f"these parameters take no part in the logits: {_listed(unused)}"
        if self.spec.embed and self.spec.blocks:
            yield from self._wrong_composition(run, tokens)

    def _wrong_composition(self, own: DryRun, tokens: Tensor) -> Iterator[str]:
        """The modules called one after the other must do what the module's own forward does."""
        paths = [*self.spec.embed, *self.blocks, *self.spec.head]
        results: list[Any] = []
        around = [self.module.get_submodule(self.spec.embed[-1]), *self.blocks.values()]
        hooks = [
            module.register_forward_hook(lambda _, __, result: results.append(result)) for module in around
        ]
        try:
            run = dry_run(Stage(self.module, paths), tokens)
        except Exception as error:
            yield f"embed, blocks and head called one after the other raised {_told(error)}"
            return
        finally:
            for hook in hooks:
                hook.remove()
        forms = list(dict.fromkeys(_described(result) for result in results))
        if len(forms) > 1:
            yield f"its blocks take and give {' and '.join(forms)}, must take and give the same"
        if run.operations != own.operations:
            yield f"its forward is not embed, blocks and head called one after the other: {_apart(own, run)}"
        missing = sorted(set(own.parameters) - set(run.parameters))
        if missing:
            yield f"these parameters are in no module of embed, blocks and head: {_listed(missing)}"
        if isinstance(results[0], Tensor):
            self.hidden = results[0].detach()


def _submodule(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _described(result: Any) -> str:
    return f"{list(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _apart(own: DryRun, composed: DryRun) -> str:
    """Where two runs first do different things."""
    for i, operation in enumerate(own.operations):
        if i == len(composed.operations) or composed.operations[i] != operation:
            other = composed.operations[i] if i < len(composed.operations) else None
            return f"operation {i + 1} is {_shown(operation)}, called so it is {_shown(other)}"
    return f"it ends before {_shown(composed.operations[len(own.operations)])}"


def _shown(operation: tuple[str, tuple[int, ...] | None] | None) -> str:
    if operation is None:
        return "none"
    name, shape = operation
    return name if shape is None else f"{name} of shape {list(shape)}"
