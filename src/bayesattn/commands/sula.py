"""`bayesattn sula`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, Asking, JsonTarget, PageTarget, optional
from bayesattn.console import telling
from bayesattn.figures.sula import HEADINGS, pictures
from bayesattn.probes.llm.subject import load
from bayesattn.probes.llm.sula import ALPHA, CONTROLS, FIXED_ALPHA
from bayesattn.probes.llm.sula_examination import EACH, PROMPTS, SulaFound, examine_sula
from bayesattn.probes.measured import plain
from bayesattn.report.headlines import of_sula
from bayesattn.report.probe import Section, require_writable, write_page


@dataclass(frozen=True, kw_only=True)
class Sula(Asking):
    """Give a language model labels in context and compare it with the exact posterior.

    Calibration against the posterior and the posterior predictive, with controls; whether evidence
    moves the values of a layer along their first component, also where all prompts are equally
    long. Whether anything reads them says `bayesattn bayes`.
    """

    model: Annotated[Positional[str | None], optional("[MODEL]")] = None
    """Run, zoo:NAME, folder, file, package or name on the hub; SmolLM2 if not given."""
    prompts: int = PROMPTS
    """Prompts for each number of pairs: 0, 1, 2, 4, 8."""
    each: int = EACH
    """Prompts of fixed length for each difference of labels: 0, 2, 4, 6, 8."""
    alpha: float = ALPHA
    """How often a shown label is the latent one, where the number of pairs varies."""
    labels: Annotated[tuple[str, ...], arg(metavar="LABEL LABEL [LABEL LABEL]")] = ()
    """Labels of one token each, the second pair for remap; chosen by rule if not given."""
    layer: int = -1
    """Layer whose values are looked at; -1 is the last."""
    no_controls: bool = False
    """Leave out the controls."""
    seed: int = 0
    """Seed of the prompts."""
    random_init: Annotated[int | None, optional("SEED")] = None
    """Look at the same network with fresh random weights instead, where nothing can be found."""
    revision: Annotated[str | None, optional("REVISION")] = None
    """Branch, tag or commit on the hub."""
    device: str = "cpu"
    """Where to compute."""
    out: Annotated[Path | None, PageTarget] = None
    json: JsonTarget = None

    def answer(self) -> Answer:
        require_writable(self.out, self.json)
        with telling() as tell:
            tell("loading")
            subject = load(
                self.model,
                device=self.device,
                dtype=None,
                random_init=self.random_init,
                revision=self.revision,
            )
            found, answers = examine_sula(
                subject,
                labels=self.labels,
                prompts=self.prompts,
                each=self.each,
                alpha=self.alpha,
                layer=self.layer,
                controls=() if self.no_controls else CONTROLS,
                seed=self.seed,
                tell=tell,
            )
        data = {"model": subject.name, "seed": self.seed, **plain(found)}
        title = f"{subject.name}: labels in context beside exact Bayes"
        subtitle = self._subtitle(found)
        shown = [f"{title}\n{subtitle}\n", found.rows()]
        if self.out is not None:
            card = {
                "model": subject.name,
                **dict(subject.plan.rows()[:-1]),
                "prompts": subtitle,
                "command": self.typed("sula"),
            }
            section = Section(rows=found.rows(), card=card)
            content = {"title": title, "subtitle": subtitle, "sections": [section]}
            content["headlines"] = of_sula(found)
            drawn = pictures(found, answers)
            page = write_page(self.out, "sula.json", data, drawn, HEADINGS, content)
            shown.append(f"\nPage: {page}")
        return Answer(data, shown)

    def _subtitle(self, found: SulaFound) -> str:
        pair, other = " and ".join(found.labels[:2]), " and ".join(found.labels[2:])
        return (
            f"labels {pair} (remap: {other}) · alpha {found.alpha:g}, at fixed length "
            f"{FIXED_ALPHA:g} · values of layer {found.layer} · {self.prompts} prompts "
            f"for each number of pairs, {self.each} of fixed length for each difference · "
            f"seed {self.seed}"
        )
