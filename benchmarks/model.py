"""`python -m benchmarks model`: whole models of ours against transformers' Llama of the same shape.

train     a step of AdamW on a batch of sequences of some length
generate  `transformers.generate`, so many tokens behind a prompt that is in the cache already
prefill   a prompt that is read in chunks, of whose last token the logits are wanted

All in one process and in turns, on the CPU and in float32. Ours have SSMax with the horizon at 128
tokens; the Llama has RoPE.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import torch
from rich.console import Console
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from tyro.conf import arg

from bayesattn.errors import UserError
from bayesattn.evals.lengths import token_lengths
from bayesattn.evals.prefill import Reader
from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.system import keep_memory
from benchmarks.long_prompt import peak_resident
from benchmarks.measure import Call, Ratio, interleave, report

Part = Literal["train", "generate", "prefill"]
PARTS: tuple[Part, ...] = get_args(Part)
REFERENCE = "llama"
MODELS: dict[str, dict[str, Any]] = {
    "mixed": {"prior": "ggd", "prior_options": {"init": "mixed"}, "ssmax_horizon": 128},
    "far last": {"prior": "ggd", "global_layers": "last", "ssmax_horizon": 128},
    "uniform": {"prior": "uniform", "ssmax": False},
}
"""Half of the heads local in every layer; far heads in the last layer only; no prior at all."""
LINEAR = "far last"
"""The one whose time does not grow with the square of the prompt."""
VOCABULARY = 1024
_LONGEST = 1 << 21


@dataclass(frozen=True)
class Row:
    """One model doing one thing."""

    part: Part
    model: str
    length: int
    """Tokens of a training sequence, of what is in the cache, or of the prompt."""
    seconds: float
    """Best time of a step, of a token, or of the prompt."""
    ratio: float | None
    """Best time over the Llama's; None if that is too slow to be asked."""
    median: float | None
    """Median time over the Llama's."""
    rounds: int
    resident_bytes: int
    """Most memory that this process ever held until then."""


@dataclass(frozen=True, kw_only=True)
class ModelBench:
    """Time whole models against a Llama of the same shape: training, generation, long prompts."""

    parts: Annotated[str, arg(metavar="PART,...")] = ",".join(PARTS)
    """What to time: train, generate, prefill."""
    models: Annotated[str, arg(metavar="NAME,...")] = ",".join(MODELS)
    """Which of ours: mixed, far last, uniform. Without any, the Llama alone."""
    layers: int = 4
    """Layers of each model. The recipe tiny has 3 of width 128 with 8 heads."""
    width: int = 512
    """Width of each model; its feed-forward layers have twice as much."""
    heads: int = 8
    """Heads of each model."""
    train: Annotated[str, arg(metavar="N,...")] = "128,512,2048,8192"
    """Tokens of a training sequence."""
    batch: int = 1
    """Sequences of a training step."""
    generate: Annotated[str, arg(metavar="N,...")] = "128,2048,32768"
    """Tokens in the cache when generation begins."""
    new: int = 32
    """Tokens to generate."""
    prefill: Annotated[str, arg(metavar="N,...")] = "65536,262144,1048576"
    """Tokens of a prompt."""
    until: int = 65_536
    """Longest prompt for models whose time grows with its square: all but far last."""
    seconds: float = 10.0
    """Time to spend on training and on generation at each length; three rounds at the least."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file ("-": to standard output, instead of a table)."""

    def run(self) -> int:
        """Measure and print."""
        for name in ("layers", "width", "heads", "batch", "new", "until"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be positive, not {getattr(self, name)}.")
        rows = list(measure(self))
        shape = f", {self.layers} layers of width {self.width}, {self.heads} heads"
        return report(rows, _printed, f"{shape}, ratios to the Llama", self.json)


def measure(config: ModelBench) -> Iterator[Row]:
    """Part by part and length by length."""
    parts, names = _chosen(config.parts, PARTS), _chosen(config.models, list(MODELS))
    lengths = {part: token_lengths(getattr(config, part), 128).values() for part in parts}
    keep_memory()
    log = Console(stderr=True)
    models = {name: build(config, name) for name in [REFERENCE, *names]}
    for part in parts:
        for length in lengths[part]:
            with log.status(f"{part} at {length}"):
                yield from _PARTS[part](config, models, length)


def build(bench: ModelBench, name: str) -> Any:
    """One of `MODELS`, or the Llama, with weights from seed 0."""
    layers, heads = bench.layers, bench.heads
    config = BayesConfig(
        vocab_size=VOCABULARY,
        hidden_size=bench.width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        **MODELS.get(name, {}),
    )
    torch.manual_seed(0)
    if name != REFERENCE:
        return BayesForCausalLM(config).eval()
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim")
    shape = {size: getattr(config, size) for size in sizes}
    llama = LlamaConfig(**shape, num_attention_heads=heads, max_position_embeddings=_LONGEST)
    return LlamaForCausalLM(llama).eval()


def _train(config: ModelBench, models: dict[str, Any], length: int) -> Iterator[Row]:
    tokens = _tokens(config.batch, length)
    calls = {name: _step(model, tokens) for name, model in models.items()}
    yield from _compared("train", length, 1, interleave(calls, REFERENCE, config.seconds))


def _step(model: Any, tokens: Tensor) -> Call:
    # rounds shall be alike: the weights stay as they are
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)

    def call() -> None:
        model.train()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return call


def _generate(config: ModelBench, models: dict[str, Any], length: int) -> Iterator[Row]:
    tokens, new = _tokens(1, length + 1), config.new
    calls = {name: _continue(model, tokens, new) for name, model in models.items()}
    ratios = interleave(calls, REFERENCE, config.seconds)
    yield from _compared("generate", length, new, ratios)


def _continue(model: Any, tokens: Tensor, new: int) -> Call:
    kept = filled(model, tokens.shape[1] - 1)
    mask = torch.ones_like(tokens)

    def call() -> Tensor:
        model.eval()
        cache = DynamicCache(config=model.config)
        cache.layers = [copy.copy(layer) for layer in kept.layers]  # they grow by new tensors
        more = {"max_new_tokens": new, "do_sample": False, "eos_token_id": None}
        return model.generate(tokens, attention_mask=mask, past_key_values=cache, **more)

    return call


def filled(model: Any, length: int) -> DynamicCache:
    """A cache as it is after so many tokens, with random content: what it is changes no time."""
    cache, config = DynamicCache(config=model.config), model.config
    shape = (1, config.num_key_value_heads, length, config.head_dim)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(shape), torch.randn(shape), layer)
    return cache


def _prefill(config: ModelBench, models: dict[str, Any], length: int) -> Iterator[Row]:
    tokens, reference = _tokens(1, length), None
    for name, model in models.items():
        if name != LINEAR and length > config.until:
            continue
        Reader(model, batch=1, tokens=512).logits(tokens[:, :512], [-1 % min(512, length)])
        begin = time.perf_counter()
        Reader(model, batch=1, tokens=length).logits(tokens, [length - 1])
        seconds = time.perf_counter() - begin
        reference = seconds if name == REFERENCE else reference
        ratio = None if reference is None else seconds / reference
        yield Row("prefill", name, length, seconds, ratio, ratio, 1, peak_resident())


_PARTS: dict[Part, Callable[[ModelBench, dict[str, Any], int], Iterator[Row]]] = {
    "train": _train,
    "generate": _generate,
    "prefill": _prefill,
}


def _compared(part: Part, length: int, count: int, ratios: dict[str, Ratio]) -> Iterator[Row]:
    for name, r in ratios.items():
        what = (part, name, length, r.seconds / count)
        yield Row(*what, r.ratio, r.median, r.rounds, peak_resident())


def _tokens(batch: int, length: int) -> Tensor:
    draw = torch.Generator().manual_seed(length)
    return torch.randint(0, VOCABULARY, (batch, length), generator=draw)


def _chosen(text: str, allowed: Any) -> list[Any]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in allowed:
            raise UserError(f"There is no {word!r}; choose from {', '.join(allowed)}.")
    return [name for name in allowed if name in words]


def _printed(row: Row) -> dict[str, str]:
    return {
        "part": row.part,
        "length": str(row.length),
        "model": row.model,
        "ms": f"{1e3 * row.seconds:.2f}",
        "ratio": "–" if row.ratio is None else f"{row.ratio:.2f}",
        "median": "–" if row.median is None else f"{row.median:.2f}",
        "rounds": str(row.rounds),
        "resident MiB": f"{row.resident_bytes / 2**20:.0f}",
    }
