"""The bank: trained models that several claims look at, each trained once.

`bank.toml` says what they are. They lie in `bank/` of the runs folder, each an ordinary run named
after model and seed, with its fidelity beside it. No claim trains them in passing, since that takes
longer than all that is measured on them: `bayesattn claims bank --train` does.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from bayesattn.checks import registered
from bayesattn.errors import MissingModelError, UserError
from bayesattn.evals.fidelity import measure
from bayesattn.files import read_json, write_json
from bayesattn.ledger.trained import DIGITS, TunnelTraining
from bayesattn.ledger.typed import Stored, from_plain, to_plain
from bayesattn.models.architectures import Transformer
from bayesattn.models.open import open_tunnel
from bayesattn.training import Run, TrainConfig
from bayesattn.tunnels import make_tunnel

FILE = Path(__file__).with_name("bank.toml")
FIDELITY = "fidelity.json"
"""In a run's folder, once it is trained and measured."""
SEQUENCES = 2000
"""Held-out sequences behind the fidelity."""


class BankModel(Stored):
    """What decides a model; another seed makes a sibling."""

    about: str
    """One line for people."""
    tunnel: Mapping[str, Any]
    architecture: str
    """One of the file's."""
    training: Mapping[str, Any]
    aim: float
    """Bits of entropy error that the training was made for."""
    seeds: int
    """Seeds 0 .. seeds-1 are wanted."""


class Bank(Stored):
    """`bank.toml`."""

    architectures: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, BankModel]


class Known(Stored):
    """What is known of a trained model."""

    mae_tok: float
    """Entropy error, bits, at the length that it was trained at."""
    kl: float
    recall: float | None
    """Accuracy where the posterior is a delta; None if it nowhere is."""
    uniform_mae: float
    """Entropy error of the uniform predictor."""
    sequences: int
    seconds: float
    """Of training."""


@dataclass(frozen=True)
class BankTraining(TunnelTraining):
    """The training of one model of the bank with one seed."""

    name: str

    @property
    def kind(self) -> str:
        return f"bank/{self.name}-{self.config.seed}"

    def train(self) -> Run:
        """Its run, found or trained now; the fidelity is measured at the end."""
        run = super().train()
        if not (run.folder / FIDELITY).exists():
            write_json(run.folder / FIDELITY, to_plain(self._measured(run)), checked=True)
        return run

    def known(self) -> Known | None:
        """What is known of the trained model; None before it is trained and measured."""
        path = self.folder / FIDELITY
        try:
            return from_plain(Known, read_json(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UserError(
                f"{path} is damaged ({error}): remove it, and `{self.command}` measures again."
            ) from None

    def found(self) -> Self:
        """Itself, if it is trained: for claims, which do not train it."""
        if self.known() is None:
            raise MissingModelError(
                f"The bank has no {self.name} with seed {self.config.seed}: train it with "
                f"`{self.command}`."
            )
        return self

    @property
    def command(self) -> str:
        """What trains it, and the seeds before it."""
        return f"bayesattn claims bank --train {self.name} --seeds {self.config.seed + 1}"

    def _measured(self, run: Run) -> Known:
        found = measure(open_tunnel(run)[0], self.tunnel, sequences=SEQUENCES)
        model, uniform = (found.parts["inside"].estimates[one] for one in ("model", "uniform"))
        recall = model["recall"].value
        assert run.finished is not None
        return Known(
            mae_tok=model["mae_tok"].value,
            kl=model["kl"].value,
            recall=None if math.isnan(recall) else recall,
            uniform_mae=uniform["mae_tok"].value,
            sequences=SEQUENCES,
            seconds=run.finished["seconds"],
        )


@cache
def read_bank(file: Path) -> Bank:
    try:
        return from_plain(Bank, tomllib.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UserError(f"{file.name}: {error}.") from None


def models() -> Mapping[str, BankModel]:
    """By name."""
    return read_bank(FILE).models


def training(name: str, seed: int) -> BankTraining:
    """How the model `name` is trained with one seed."""
    model = registered("model of the bank", name, models())
    network = read_bank(FILE).architectures[model.architecture]
    # one thread, since sums over several differ with their number
    config = TrainConfig(**model.training, seed=seed, threads=1)
    return BankTraining(make_tunnel(**model.tunnel), Transformer(**network), config, name)


def digest(name: str) -> str:
    """The same for the same recipe: what a claim that looks at this model registers of it."""
    return training(name, 0).folder.name[-DIGITS:]


def registered_training(name: str, registered: str, seed: int) -> BankTraining:
    """The model `name` that a claim registered with its digest; a sentence if it is not there."""
    if (now := digest(name)) != registered:
        raise UserError(
            f"The bank trains {name} in another way now ({now}), and {registered} was registered: "
            "register a new version of the claim, or restore the bank."
        )
    return training(name, seed).found()
