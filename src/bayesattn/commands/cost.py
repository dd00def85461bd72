"""`bayesattn cost`: what a model needs, predicted; and how good predictions are on this machine."""

from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Annotated, Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, JsonTarget, optional
from bayesattn.errors import UserError
from bayesattn.models import SIZES, BayesConfig, BayesForCausalLM
from bayesattn.models.cost import METHODS, attention_cost, cost, weights, written_out
from bayesattn.system import peak_bytes

MEASURED = (("nano", 128, 8), ("tiny", 128, 8), ("tiny", 512, 2), ("mini", 128, 4))
"""Size, length and batch that any machine can run in seconds."""
GIB = 2**30
LENGTHS = (1024, 16_384, 65_536, 262_144)


@dataclass(frozen=True, kw_only=True)
class CostCommand:
    """Predict operations, memory and time of training a model."""

    size: Annotated[Positional[str], arg(metavar=f"[{'|'.join(SIZES)}]")] = "l12"
    """nano, tiny, mini, or one of the authors' l6 to l24."""
    length: int = 512
    """Tokens of a training sequence."""
    batch: int = 1152
    """Sequences per step, over all devices together."""
    steps: int = 20_000
    """Steps."""
    micro_batch: int = 32
    """Sequences that one device takes at once."""
    precision: str = "bf16"
    """fp32 or bf16."""
    speed: Annotated[float | None, optional("TFLOPS")] = None
    """10^12 operations per second of one device in practice; this machine's if not given."""
    measure: bool = False
    """Compare predictions with what small models really need here, instead."""
    json: JsonTarget = None

    def run(self) -> int:
        return (self._measured() if self.measure else self._predicted()).give(self.json)

    def _measured(self) -> Answer:
        rows = [measured(*case) for case in MEASURED]
        return Answer(rows, [[{name: _text(cell) for name, cell in row.items()} for row in rows]])

    def _predicted(self) -> Answer:
        config = self._config()
        step = cost(config, self.length, self.batch, self.precision)
        own = cost(config, self.length, self.micro_batch, self.precision)
        speed = matmul_speed() if self.speed is None else self.speed * 1e12
        found = {
            "parameters": weights(config),
            "operations per token": step.training / (self.batch * self.length),
            "operations in all": step.training * self.steps,
            "tokens in all": self.batch * self.length * self.steps,
            "memory of a device, GiB": own.memory / GIB,
            "of it weights, gradients, moments, GiB": own.state / GIB,
            "operations per second of a device": speed,
            "hours on one such device": step.training * self.steps / speed / 3600,
        }
        ways = [
            {"method": method, "length": length, **asdict(attention_cost(method, config, length))}
            for length in LENGTHS
            for method in METHODS
        ]
        rows = [
            {
                "length": f"{way['length']:,}",
                "method": way["method"],
                "operations": f"{way['operations']:.3g}",
                "extra MiB": f"{way['extra'] / 2**20:,.1f}",
                "moved MiB": f"{way['moved'] / 2**20:,.1f}",
            }
            for way in ways
        ]
        shown = [{"": name, self.size: f"{value:,.4g}"} for name, value in found.items()]
        title = "\nAttention of one layer, one sequence, forward"
        return Answer({"training": found, "attention": ways}, [shown, title, rows])

    def _config(self) -> BayesConfig:
        if self.size not in SIZES:
            raise UserError(f"There is no size {self.size!r}: choose one of {', '.join(SIZES)}.")
        if self.precision not in ("fp32", "bf16"):
            raise UserError(f"--precision must be fp32 or bf16, not {self.precision!r}.")
        for name in ("length", "batch", "steps", "micro_batch"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be 1 or more.")
        return SIZES[self.size]()


def measured(size: str, length: int, batch: int) -> dict[str, Any]:
    """Predicted and real operations, memory and time of one training step."""
    config: BayesConfig = SIZES[size](prior="ggd", ssmax=True, ssmax_scope="content")
    model = BayesForCausalLM(config)
    tokens = torch.randint(config.vocab_size, (batch, length))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    predicted = cost(config, length, batch)
    memory = peak_bytes(step) + 3 * 4 * sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter:
        model(tokens, labels=tokens)
    start = perf_counter()
    step()
    seconds = perf_counter() - start
    return {
        "size": size,
        "length": length,
        "batch": batch,
        "operations": predicted.forward,
        "operations, counted": counted(counter, config, length, batch),
        "memory": predicted.memory,
        "memory, measured": memory,
        "seconds at the speed of a matrix product": predicted.training / matmul_speed(),
        "seconds, measured": seconds,
    }


def counted(counter: FlopCounterMode, config: BayesConfig, length: int, batch: int) -> float:
    """Operations that torch counted, and those inside our kernel, which it cannot see."""
    if written_out(config, length):
        return counter.get_total_flops()
    pairs = batch * config.num_hidden_layers * config.num_attention_heads * length**2
    inside = 2 * pairs * (config.head_dim or 0)
    return counter.get_total_flops() + inside


def matmul_speed(size: int = 1024, rounds: int = 5) -> float:
    """Operations per second of a large product, the best of a few."""
    a, b = torch.randn(2, size, size)
    best = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        torch.mm(a, b)
        best = min(best, perf_counter() - start)
    return 2 * size**3 / best


def _text(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:.3g}"
