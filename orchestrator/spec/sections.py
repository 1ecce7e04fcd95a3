"""The sections of a job file. Each class documents one section; units are in the field names or descriptions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A part of a job file: immutable, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, serialize_by_alias=True
    )

    @classmethod
    def fields_by_key(cls) -> dict[str, FieldInfo]:
        """The fields by their keys in a job file: `import` is no name in Python."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}


class MoeSpec(Section):
    """A mixture of experts in place of the feed-forward (Shazeer et al. 2017; Dai et al. 2024, DeepSeekMoE)."""

    experts: Annotated[int, Field(ge=2, le=4096)]
    """Experts of a layer."""
    top_k: Annotated[int, Field(ge=1, le=64)] = 2
    """Experts a token is sent to."""
    ffn_hidden: Annotated[int, Field(ge=8, le=262_144)] | None = None
    """Inner size of one expert; null: model.ffn_hidden."""
    shared_experts: Annotated[int, Field(ge=0, le=64)] = 0
    """Experts that every token passes, one feed-forward of `shared_experts` x the inner size of an expert."""
    shared_gate: bool = False
    """The shared experts' output is scaled by a sigmoid of a linear map of the token (Qwen 2 MoE)."""
    dense_layers: Annotated[int, Field(ge=0, le=1024)] = 0
    """First layers that keep a plain feed-forward."""
    normalize_weights: bool = True
    """The weights of a token's experts are scaled to a sum of one."""
    capacity_factor: Annotated[float, Field(gt=0, le=64)] | None = None
    """Tokens of one sequence that an expert takes, as a multiple of its even share; the rest is dropped, later
    positions first. Null: dropless."""
    balance: Literal["none", "loss", "bias"] = "loss"
    """`loss`: auxiliary loss of each sequence (Fedus et al. 2022, eq. 4). `bias`: a bias on the choice, not on the
    weights, moved after each step against the load (Wang et al. 2024, loss-free balancing)."""
    balance_rate: Annotated[float, Field(ge=0, le=10)] = 1e-3
    """Weight of the auxiliary loss, or the step of the bias."""


class RopeScalingSpec(Section):
    """Longer contexts from rotary positions that were trained on shorter ones."""

    kind: Literal["linear", "llama3"]
    """`linear`: Chen et al. 2023, position interpolation. `llama3`: low frequencies alone are interpolated."""
    factor: Annotated[float, Field(ge=1, le=1024)]
    """How much longer the contexts are."""
    low_frequency_factor: Annotated[float, Field(gt=0, le=1024)] = 1.0
    """With llama3: fewer turns than this over the original positions, and a frequency is interpolated in full."""
    high_frequency_factor: Annotated[float, Field(gt=0, le=1024)] = 4.0
    """With llama3: more turns than this, and a frequency stays as it is."""
    original_positions: Annotated[int, Field(ge=8, le=1_048_576)] = 8192
    """With llama3: tokens of the contexts the model was trained on."""


ModulePath = Annotated[str, Field(min_length=1, max_length=256)]
"""Of a module inside a model, as torch names it: `layers.0.norm`."""


class Split(StrEnum):
    """What tensor parallelism makes of a linear map or an embedding of an imported model."""

    COLWISE = "colwise"
    """Each rank computes a part of the outputs."""
    ROWWISE = "rowwise"
    """Each rank takes a part of the inputs, or of the vocabulary; the results are added up."""
    REPLICATE = "replicate"
    """The same on every rank, as all that the plan does not name."""


class ModelSpec(Section):
    """A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU or experts. Or, with
    `import`, a module of your own: the decoder's fields are then left out."""

    kind: Literal["decoder", "import"] | None = None
    """Null: `import` where the field `import` is given, else `decoder`."""
    layers: Annotated[int, Field(ge=1, le=1024)] = 4
    """Every pipeline stage needs one at least."""
    hidden: Annotated[int, Field(ge=8, le=65536)] = 128
    """Size of the residual stream; a multiple of `heads` unless `head_size` is given."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Query heads."""
    kv_heads: Annotated[int, Field(ge=1, le=1024)] = 2
    """Key-value heads; divides `heads`."""
    head_size: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Null: hidden / heads."""
    ffn_hidden: Annotated[int, Field(ge=8, le=262144)] = 384
    """Inner size of the feed-forward."""
    rope_theta: Annotated[float, Field(ge=1, le=1e12)] = 10_000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScalingSpec | None = None
    norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Added to the mean square in RMSNorm."""
    tied_embeddings: bool = False
    """The head is the embedding; both must then lie on one pipeline stage."""
    projection_bias: bool = False
    """Biases on query, key and value (Qwen 2)."""
    head_norm: bool = False
    """RMSNorm on each head's query and key (Qwen 3)."""
    moe: MoeSpec | None = None
    weights: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path of a Hugging Face directory (config.json, safetensors) that every node sees; training starts from
    its weights, and the fields above must describe the same model. Null: random weights."""
    function: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(default=None, alias="import")
    """`module:function` of your own code, called with `options` on every rank: gives a torch module from token ids
    (sequences, positions) to logits (sequences, positions, data.vocab_size). The ranks run it as it is."""
    import_path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path of a directory that every node sees, searched first for the module of `import`. Null: it is
    installed on every node, or on the nodes' PYTHONPATH."""
    options: dict[str, JsonValue] = {}
    """What the function of `import` is called with."""
    blocks: ModulePath | None = None
    """Path of the imported model's list of blocks, which are called in its order: the units of ZeRO and recompute, and
    what a pipeline deals out."""
    embed: Annotated[tuple[ModulePath, ...], Field(max_length=64)] = ()
    """Paths of the modules before the blocks, called one after the other on the token ids; a pipeline needs them."""
    head: Annotated[tuple[ModulePath, ...], Field(max_length=64)] = ()
    """Paths of the modules after the blocks, called one after the other, up to the logits; a pipeline needs them."""
    tp_plan: dict[ModulePath, Split] = {}
    """How tensor parallelism splits the imported model: path of a linear map or an embedding, `*` for any one part of
    it, to `colwise`, `rowwise` or `replicate`. All else is replicated."""

    @property
    def imported(self) -> bool:
        """The model is a module of the user's own."""
        return self.function is not None or self.kind == "import"

    @property
    def size_of_head(self) -> int:
        return self.head_size or self.hidden // self.heads

    def is_moe(self, layer: int) -> bool:
        """Whether layer `layer` (0-based) has experts."""
        return self.moe is not None and layer >= self.moe.dense_layers


class PipelineSchedule(StrEnum):
    """Pipeline schedules by their names in the literature."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED_1F1B = "interleaved-1f1b"
    ZERO_BUBBLE = "zero-bubble"
    ZBV = "zbv"

    @property
    def takes_virtual_stages(self) -> bool:
        """Whether a rank may hold several stages."""
        return self in (self.INTERLEAVED_1F1B, self.ZERO_BUBBLE, self.ZBV)


class ContextMethod(StrEnum):
    """How attention sees the keys of other context-parallel ranks."""

    ALL_GATHER = "all-gather"
    RING = "ring"
    ULYSSES = "ulysses"


Degree = Annotated[int, Field(ge=1, le=131_072)]


class ParallelismSpec(Section):
    """Degrees of the axes of parallelism and how the pipeline is driven."""

    tp: Degree = 1
    """Tensor-parallel degree."""
    pp: Degree = 1
    """Pipeline stages."""
    dp: Degree = 1
    """Data-parallel replicas: dp_replicate x dp_shard."""
    cp: Degree = 1
    """Context-parallel degree: ranks that share each sequence."""
    context: ContextMethod = ContextMethod.ALL_GATHER
    """`all-gather` keys and values, pass them round a `ring` (Liu et al. 2023), or trade positions for heads
    (`ulysses`, Jacobs et al. 2023)."""
    ep: Degree = 1
    """Expert-parallel degree. Takes no ranks of its own: experts are spread over the data, context and tensor ranks."""
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    """ZeRO stage (Rajbhandari et al. 2020): 1 shards optimizer states, 2 gradients too, 3 parameters too."""
    dp_shard: Degree | None = None
    """Data ranks over which states are sharded; dp / dp_shard replicas of them (hybrid sharding). Null: all of dp with
    zero 1, 2 or 3."""
    reshard_after_forward: bool | Annotated[int, Field(ge=2, le=131_072)] = True
    """With zero 3: free gathered parameters between forward and backward. A number: keep them sharded over so many
    neighbours."""
    bucket_mb: Annotated[float, Field(ge=0, le=65_536)] = 25.0
    """MiB of gradients, and with zero of parameters, that the data ranks send at once. ZeRO joins whole blocks up to
    it; 0: each block goes alone."""
    sequence: bool = True
    """Sequence parallelism with tp: norms and residuals sharded along the sequence."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """Order of the pipeline's forward and backward passes."""
    microbatches: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Micro-batches a step in each replica: pipeline micro-batches, or gradient accumulation without a pipeline."""
    virtual_stages: Annotated[int, Field(ge=1, le=64)] = 1
    """Stages a pipeline rank holds."""
    layers_per_stage: tuple[Annotated[int, Field(ge=0, le=1024)], ...] | None = None
    """Layers of each of the pp x virtual_stages stages, in model order; null: balanced by their parameters."""

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def shards(self) -> int:
        """Data ranks over which states are sharded: 1 without ZeRO."""
        return (self.dp_shard or self.dp) if self.zero else 1

    @property
    def bucket_bytes(self) -> int:
        return round(self.bucket_mb * 2**20)

    @property
    def stages(self) -> int:
        return self.pp * self.virtual_stages


class OptimizerSpec(Section):
    """The update rule and its learning rate over the steps."""

    name: Literal["adamw", "sgd", "muon"] = "adamw"
    """`adamw`: Loshchilov and Hutter 2019. `sgd`: with momentum. `muon`: Jordan et al. 2024 on the matrices of the
    layers, AdamW on all else."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 3e-3
    """The highest rate."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay of the two moments of adamw."""
    eps: Annotated[float, Field(gt=0, lt=1)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Applied to matrices only, never to norms and biases."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of sgd and muon."""
    warmup_steps: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Steps over which the rate rises linearly; at most `training.steps`."""
    schedule: Literal["constant", "cosine", "wsd"] = "cosine"
    """`wsd`: warm-up, stable, then linear decay over the last `decay_steps` (Hu et al. 2024)."""
    decay_steps: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Steps at the end over which wsd decays; 0 with the other schedules."""
    min_learning_rate: Annotated[float, Field(ge=0, le=10)] = 0.0
    """What cosine and wsd fall to; at most `learning_rate`."""


class Precision(StrEnum):
    """fp64 exists to prove the mathematics; bf16 and fp16 are formats of matrix products over fp32 parameters."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """With dynamic loss scaling (Micikevicius et al. 2018)."""
    FP8 = "fp8"
    """Scaled by tensor (Micikevicius et al. 2022), on accelerators that multiply in it; the rest as with bf16."""


class RecomputeSpec(Section):
    """Activations thrown away in forward and computed again in backward (Chen et al. 2016)."""

    mode: Literal["none", "selective", "elementwise", "full"] = "none"
    """`full`: everything inside a layer. `selective`: attention alone (Korthikanti et al. 2022). `elementwise`: all but
    matrix products and attention, whose results are kept."""
    every: Annotated[int, Field(ge=1, le=1024)] = 1
    """Every n-th layer is recomputed."""


class OffloadSpec(Section):
    """What waits in host memory or on disk instead of accelerator memory."""

    optimizer: Literal["none", "host", "disk"] = "none"
    """Where optimizer states live between steps; `disk`: memory-mapped files in `directory`."""
    activations: bool = False
    """What backward needs waits in host memory."""
    directory: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path on a fast local disk of every node, for `disk`."""
    pinned_pool_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Host memory pinned for the transfers, MB."""


class TrainingSpec(Section):
    """Steps, batches, precision, and what they cost in memory."""

    steps: Annotated[int, Field(ge=1, le=100_000_000)]
    """Optimizer steps."""
    global_batch: Annotated[int, Field(ge=1, le=1_048_576)] = 16
    """Sequences a step over the whole job."""
    sequence_length: Annotated[int, Field(ge=8, le=1_048_576)] = 128
    """Tokens a sequence."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """The update rule and its learning rate over the steps."""
    clip_norm: Annotated[float, Field(gt=0, le=1e12)] | None = 1.0
    """Global gradient norm above which gradients are scaled down; null: no clipping."""
    precision: Precision = Precision.FP32
    """Format of matrix products: fp64, fp32, bf16, fp16 with dynamic loss scaling, fp8 where the device has it."""
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are kept and summed over micro-batches and ranks. `bf16` halves their memory and
    traffic, rounds every sum, and needs precision bf16. With precision fp64 they are fp64."""
    compile: bool = False
    """torch.compile each layer."""
    recompute: RecomputeSpec = RecomputeSpec()
    """Activations thrown away in forward and computed again in backward."""
    offload: OffloadSpec = OffloadSpec()
    """What waits in host memory or on disk instead of accelerator memory."""
    on_nonfinite: Literal["stop", "skip", "rewind"] = "stop"
    """When loss or gradients are not finite: fail the job, skip the step's update, or go back to the last checkpoint
    and skip the step's batch."""
    nonfinite_budget: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Skips and rewinds after which the job fails."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1234
    """Parameters and data order follow from it, whatever the plan."""
    eval_every: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Steps between evaluations on the held-back part; 0: only after the last step."""
    eval_sequences: Annotated[int, Field(ge=1, le=1_048_576)] = 64
    """Held-back sequences an evaluation reads (fewer when the held-back part is smaller)."""


class SourceFormat(StrEnum):
    """What a source holds. `auto` tells by the name: .jsonl, .ndjson, .parquet, a prepared directory, else text."""

    AUTO = "auto"
    TEXT = "text"
    """UTF-8; a file is a document."""
    JSONL = "jsonl"
    """A JSON object a line; a line is a document."""
    PARQUET = "parquet"
    """A row is a document."""
    TOKENS = "tokens"
    """A directory that `atoll data prepare` wrote."""


class SourceSpec(Section):
    """One source of documents and its share of what is read."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """`pydoc`, an absolute path that every node sees, or a URL (file, s3, http, https). `*` in the last part of a path
    or an s3 URL: all files that match, in the order of their names."""
    format: SourceFormat = SourceFormat.AUTO
    field: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Key of a JSONL object or column of a Parquet file that holds the text; null: `text`."""
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the sequences, beside the weights of the other sources."""


class DataSpec(Section):
    """What is read, how it becomes tokens, and what is held back."""

    source: Annotated[str, Field(min_length=1, max_length=1024)] = "pydoc"
    """`pydoc` (the English help text inside Python's own pydoc_data.topics) or the absolute path of a UTF-8 text file
    that every node sees. The whole is one document."""
    sources: Annotated[tuple[SourceSpec, ...], Field(max_length=256)] = ()
    """Several sources, or one in another format; instead of `source`."""
    tokenizer: Literal["bytes", "bpe", "file"] = "bytes"
    """`bytes`: 256 symbols. `bpe`: a byte-level BPE trained on the text at start, deterministic, or the one that the
    sources were prepared with. `file`: `tokenizer_file`."""
    tokenizer_file: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path of a JSON file of the `tokenizers` library that every node sees."""
    end_of_document: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """With the tokenizer `file`: the token that ends a document; null: the first it has of <|endoftext|>,
    <|end_of_text|>, </s> and <eos>. The others end documents with byte 255, which no UTF-8 text holds."""
    vocab_size: Annotated[int, Field(ge=256, le=1_000_000)] = 256
    """256 for bytes; the target size for bpe; at least the tokenizer's for file."""
    holdout_fraction: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Part that is never trained on."""
    holdout: Literal["end", "hash"] = "end"
    """`end`: the end of each source. `hash`: the documents with the least hash, wherever they lie."""
    document_masks: bool = False
    """Attention stays inside a document."""
    on_bad_line: Literal["fail", "skip"] = "fail"
    """A line that is too long, not UTF-8, or no JSON object with the field."""
    max_line_mb: Annotated[int, Field(ge=1, le=1024)] = 16
    """Longest line or Parquet value, MiB."""


class MemorySpec(Section):
    """Snapshots in the memory of the nodes, from which a job goes on without reading storage."""

    every: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Steps between snapshots; 0: none are kept."""
    replicas: Annotated[int, Field(ge=0, le=8)] = 1
    """Copies of each snapshot on other nodes, in another failure domain where the job has more than one; the loss of
    any so many nodes leaves a copy of everything. 0: a dead rank is repaired from memory, a lost node is not."""
    limit_bytes: Annotated[int, Field(ge=1, le=1_000_000_000_000_000)] | None = None
    """Memory that one node gives, its own ranks' snapshots and those of others together; what does not fit is not kept,
    and said so. Each rank needs twice its state, for itself and for each copy. Null: a quarter of the node's memory."""


class CheckpointSpec(Section):
    """When checkpoints are written, where, and how many are kept."""

    every: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Steps between checkpoints; 0: only after the last step."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Committed checkpoints kept, newest first."""
    keep_best: bool = False
    """Keep the checkpoint with the smallest held-back loss too, beside the newest ones; one is written whenever an
    evaluation is the best so far."""
    asynchronous: bool = True
    """Write while training goes on."""
    directory: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path on storage that every node sees; each job has a folder in it, named by its id. Null: below the
    control plane's storage directory."""
    memory: MemorySpec = MemorySpec()
    """Snapshots in the memory of the nodes, between these checkpoints."""


class RecoverySpec(Section):
    """How often a job is repaired before it fails."""

    max_restarts: Annotated[int, Field(ge=0, le=10_000)] = 5
    """Repairs after failures of the program, and as many after ranks that died or stood still without a known cause. A
    newer checkpoint begins the count again."""
    max_hardware_failures: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Repairs after the loss of nodes and connections; a newer checkpoint begins the count again."""
    max_restarts_at_step: Annotated[int, Field(ge=1, le=100)] = 3
    """Deaths at the same step, without progress between, after which the job fails; lost nodes do not count."""
    min_dp: Annotated[int, Field(ge=1, le=131_072)] | None = None
    """Fewest data replicas with which the job goes on when nodes are lost and nothing stands in for them: the same
    global batch, in more micro-batches. Null: it waits for all of them."""
    step_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Longest time a collective may wait; the derived timeouts follow from it."""
    hang_after_s: Annotated[float, Field(ge=0.5, le=86_400)] = 30.0
    """A job is taken for hung when no rank gets on for this long, for `hang_factor` times the median step and for 3
    times the longest of the last 200 steps, whichever is longest."""
    hang_factor: Annotated[float, Field(ge=2, le=10_000)] = 10.0
    """Median steps without progress after which a job may be taken for hung."""


class Stragglers(StrEnum):
    """What is done about ranks that are slower than their peers."""

    OFF = "off"
    """Nothing is measured."""
    OBSERVE = "observe"
    """They are named, with what they cost."""
    REPLACE = "replace"
    """They are named, and a slow node that costs more than leaving it is replaced from a checkpoint made for it, and
    cordoned."""


class HealthSpec(Section):
    """What is measured of each rank while the job runs."""

    stragglers: Stragglers = Stragglers.OBSERVE
    """What is done about ranks that are slower than their peers."""


class Tier(StrEnum):
    """Levels of locality, nearest first. `any` accepts every distance."""

    ISLAND = "island"
    NODE = "node"
    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"
    ANY = "any"


class AxisRule(Section):
    """How near the ranks of an axis must be."""

    tier: Tier
    """The domain that holds them together."""
    mode: Literal["required", "preferred"] = "required"
    """`required` never degrades; `preferred` may, and the placement says by how much."""


class PlacementSpec(Section):
    """How near the ranks of an axis must be, and which axes are nearest."""

    tp: AxisRule = AxisRule(tier=Tier.ISLAND)
    """Every tensor group."""
    cp: AxisRule = AxisRule(tier=Tier.ISLAND, mode="preferred")
    """Every context group with its tensor ranks."""
    ep: AxisRule = AxisRule(tier=Tier.ISLAND, mode="preferred")
    """Every expert group: neighbours within a stage, tensor ranks first, then context, then data ranks."""
    pp: AxisRule = AxisRule(tier=Tier.LEAF)
    """Every pipeline: all stages with their tensor and context ranks."""
    dp: AxisRule = AxisRule(tier=Tier.ANY, mode="preferred")
    """Every data group: the same place in every replica."""
    order: Annotated[str, Field(min_length=2, max_length=32)] | None = None
    """Axes from the nearest to the farthest, in Megatron's form: `tp-cp-ep-dp-pp`. Where the rules leave a choice, the
    first axis is laid on the nearest accelerators. Null: the order that costs least (docs/placement.md)."""


class ResourcesSpec(Section):
    """What every rank needs of its node."""

    cpus_per_rank: Annotated[float, Field(ge=0, le=1024)] = 0.0
    """Ray CPUs reserved for each rank on its node."""
    accelerator: (
        Annotated[
            str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
        ]
        | None
    ) = None
    """Only nodes whose `accelerator` label has this value; null: any."""
    mix_accelerators: bool = False
    """One job may lie on accelerators of several types: it then runs as fast as the slowest."""


ProjectName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]


class QueueSpec(Section):
    """What decides when the job starts, and for how long it may run."""

    project: ProjectName = "default"
    """Whose share and quota it counts against; lower-case letters, digits and hyphens."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher ones start first."""
    time_limit_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Longest time it may hold accelerators, over all its placements; then it saves a checkpoint and fails. Null: no
    limit. A job with a limit may start on accelerators that are kept for another one and needed later."""
    preemptible: bool = False
    """It may be stopped for a job of higher priority: it saves a checkpoint, waits again and goes on from there."""
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Time to finish the step and save a checkpoint before it is stopped."""
