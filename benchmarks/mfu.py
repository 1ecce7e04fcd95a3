"""Model FLOP utilisation of one accelerator: a decoder of about one billion parameters, bf16, compiled blocks.

The FLOPs of a token and the convention are `orchestrator/estimate/flops.py`'s, the device's peak
`orchestrator/estimate/hardware.yaml`'s. `--small` is the same path with a small model, for a machine without an
accelerator: it has no verdict.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from report import Verdict, conclude

from actors.training import device as devices
from actors.training.engine import Engine
from actors.training.metrics.memory import device_name, peak_bytes
from orchestrator.estimate.flops import flops_per_token
from orchestrator.estimate.hardware import peak_flops
from orchestrator.spec import JobSpec

BAR = 0.45
LARGE: dict[str, Any] = {
    "model": {
        "layers": 16,
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 8,
        "ffn_hidden": 8192,
    },
    "training": {"global_batch": 8, "sequence_length": 4096},
}
SMALL: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn_hidden": 128},
    "training": {"global_batch": 4, "sequence_length": 64},
}


def job(sizes: dict[str, Any], *, steps: int, microbatches: int) -> JobSpec:
    training = {**sizes["training"], "steps": steps, "precision": "bf16", "compile": True}
    return JobSpec.model_validate(
        {"name": "mfu", **sizes, "training": training, "parallelism": {"microbatches": microbatches}}
    )


def step_times(spec: JobSpec, device: torch.device) -> tuple[list[float], int]:
    """Seconds of every step, the device idle at both ends; parameters of the model."""
    with tempfile.TemporaryDirectory() as directory:
        store = dist.FileStore(str(Path(directory) / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group(
            devices.backend(device), store=store, rank=0, world_size=1, timeout=timedelta(minutes=10)
        )
        engine = Engine(spec, device, rank=0)
        times = []
        for step in range(spec.training.steps):
            devices.synchronize(device)
            began = time.perf_counter()
            loss = engine.train_step(step, stop=False).loss
            devices.synchronize(device)
            times.append(time.perf_counter() - began)
            print(f"step {step + 1}  loss {loss:.4f}  {times[-1]:.3f} s", flush=True)
        dist.destroy_process_group()
    return times, sum(parameter.numel() for _, parameter in engine.named)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--skip", type=int, default=10, help="first steps left out: compilation")
    parser.add_argument("--microbatches", type=int, default=4, help="more when memory is short")
    parser.add_argument(
        "--small", action="store_true", help="a small model and no verdict, to try the script"
    )
    options = parser.parse_args()
    device = devices.bind()
    spec = job(SMALL if options.small else LARGE, steps=options.steps, microbatches=options.microbatches)
    training, name = spec.training, device_name(device)
    peak = peak_flops(name, training.precision)
    if peak is None and not options.small:
        parser.error(
            f"no peak rate is known for {name or 'a CPU'}: add it to orchestrator/estimate/hardware.yaml"
        )
    times, parameters = step_times(spec, device)
    tokens = training.global_batch * training.sequence_length
    flops = tokens * flops_per_token(
        spec.model, vocab_size=spec.data.vocab_size, positions=training.sequence_length
    )
    median_s = statistics.median(times[options.skip :])
    print(f"{parameters / 1e9:.3f} billion parameters, {tokens / median_s:.0f} tokens/s")
    if peak is None:
        return 0
    setting = {
        "device": name,
        "peak_flops": peak,
        "job": spec.model_dump(mode="json"),
        "parameters": parameters,
        "skip": options.skip,
        "peak_memory_bytes": peak_bytes(device),
    }
    value = flops / median_s / peak
    return conclude(Verdict("mfu", "ratio", value, BAR), setting=setting, samples={"step_times_s": times})


if __name__ == "__main__":
    raise SystemExit(main())
