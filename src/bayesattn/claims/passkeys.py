"""How far a trained language model finds passkeys, and at what perplexity it reads.

    found(variant, question)    prompts whose five digits are all right, of so many
    bits(variant)               of perplexity on held-out text at the training length

Needles stand at depths 0, 1/n, 2/n … of n prompts, so never next to the question. Only variants
that find .95 of them at the training length are asked farther away.

The training mixture has passkey prompts, up to the training length; the authors' had none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bayesattn.claims.language_models import VARIANTS, LanguageRecipe
from bayesattn.corpora import NeedleMaker
from bayesattn.corpora.haystacks import Filler
from bayesattn.evals.lengths import one_length
from bayesattn.evals.passkey import passkey
from bayesattn.evals.perplexity import held_out, perplexity
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import LanguageModel
from bayesattn.verdicts import Count

LEARNT = 0.95
"""Share of passkeys at the training length without which nothing is asked farther away."""
INSIDE = "1x"
FAILURES = 2
"""After so many lengths in a row without a correct answer longer ones count as not found."""


class Question(Stored):
    """Prompts of one length."""

    length: str
    """In training lengths, such as 64x."""
    depths: int = 10
    """Prompts, each with its needle at a depth of its own."""
    haystack: Filler = "repeated"
    distractors: int = 0

    @property
    def name(self) -> str:
        others = f" among {self.distractors}" if self.distractors else ""
        where = "" if self.haystack == "repeated" else f" in {self.haystack}"
        return f"{self.length}{where}{others}"

    @property
    def factor(self) -> float:
        return float(self.length.removesuffix("x"))


class PasskeyRecipe(LanguageRecipe):
    """Models, and what they are asked."""

    questions: tuple[Question, ...] = ()
    """The first one is at the training length."""
    text: int = 0
    """Held-out sequences of the training length that are read for perplexity, at most."""
    tolerance: float | None = None
    """Share of the posterior that attention may leave out where there is a prior to prove it by."""

    def answers(self, variant: str, seed: int) -> dict[str, list[Count]]:
        """By question, one count for each depth."""
        found: dict[str, list[Count]] = {}
        makers: dict[Any, NeedleMaker] = {}
        missed: dict[Any, int] = {}
        # without a prior nothing can be left out, and looking for it costs time
        config = self.language(variant)
        tolerance = None if config.prior == "uniform" or config.forget else self.tolerance
        for own in sorted(self.questions, key=lambda own: own.factor):
            kind = (own.haystack, own.distractors)
            ablated = VARIANTS[variant].made_local is not None
            learnt = ablated or own.length == INSIDE or share(found[INSIDE]) >= LEARNT
            if not learnt or missed.get(kind, 0) == FAILURES:
                found[own.name] = [Count(0, 1)] * own.depths
                continue
            model = self.model(variant, seed, one_length(own.length, self.length))
            if kind not in makers:
                makers[kind] = NeedleMaker(
                    model.tokenizer, haystack=own.haystack, distractors=own.distractors
                )
            found[own.name] = ask(model, own, makers[kind], seed, tolerance)
            missed[kind] = 0 if share(found[own.name]) else missed.get(kind, 0) + 1
        return found

    def perplexity(self, variant: str, seed: int) -> float | None:
        """Of pieces of held-out text as long as a training sequence; None if it is not asked."""
        if not self.text:
            return None
        model = self.model(variant, seed, self.length)
        pieces = held_out(self.corpus, model.tokenizer, self.length, self.text)
        return perplexity(model, pieces).by_length()[-1]["perplexity"]


def ask(
    model: LanguageModel, own: Question, maker: NeedleMaker, seed: int, tolerance: float | None
) -> list[Count]:
    depths = [at / own.depths for at in range(own.depths)]
    found = passkey(
        model, own.length, depths=depths, samples=1, seed=seed, tolerance=tolerance, maker=maker
    )
    return [Count(cell.correct, cell.total) for cell in found.cells]


def total(counts: Sequence[Count]) -> Count:
    return Count(sum(own.successes for own in counts), sum(own.trials for own in counts))


def share(counts: Sequence[Count]) -> float:
    return total(counts).successes / total(counts).trials


class Answers(Stored):
    """What one model said."""

    lr: float
    """Learning rate it was trained at."""
    found: Mapping[str, list[Count]]
    """By question, for each depth."""
    perplexity: float | None = None
    shapes: list[float] | None = None
    """β of every head, of a learned prior."""

    @property
    def learnt(self) -> bool:
        return INSIDE not in self.found or share(self.found[INSIDE]) >= LEARNT
