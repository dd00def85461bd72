"""`bayesattn bayes`: is a model Bayesian, and where does its belief live?"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, Asking, JsonTarget, PageTarget, Step, optional
from bayesattn.figures.bayes import HEADINGS, pictures
from bayesattn.models.architectures import build
from bayesattn.models.hugging_face import fresh_model
from bayesattn.models.open import Source, find, open_tunnel, tunnel_run
from bayesattn.probes.bayes.behaviour import Task
from bayesattn.probes.bayes.examination import FRESH, SEEDS, BayesFound, Open, examine
from bayesattn.probes.bayes.readers import TunnelReader
from bayesattn.probes.bayes.tasks import LENGTH, language_tasks, tunnel_task
from bayesattn.probes.llm.subject import Structure, Subject, load
from bayesattn.report.probe import Section, require_writable, write_page
from bayesattn.verdicts import LOOKS

SEQUENCES = {"tunnel": 64, "language": 8}


@dataclass(frozen=True, kw_only=True)
class Bayes(Asking):
    """Ask a model to predict where the exact posterior is known: is it Bayesian?

    MODEL is whatever `bayesattn probe` takes. A model of a tunnel is judged in its own tunnel; a
    language model reads coins, dice, Markov chains and SULA in labels of one token. Beside it stand
    exact Bayes, a predictor that collects no evidence, and the same network with fresh weights.
    Where a model infers, it is shown in which layers the belief lives.
    """

    model: Annotated[Positional[str | None], optional("[MODEL]")] = None
    """Run, zoo:NAME, folder, file, package or name on the hub; SmolLM2 if not given."""
    seeds: int = SEEDS
    """Draws of sequences, 4 to 12; verdicts are looked at after 4, 8 and 12."""
    sequences: Annotated[int | None, optional("N")] = None
    """Sequences of each draw; 64 of a tunnel, 8 of a language model, if not given."""
    length: int = LENGTH
    """Language models: draws in a sequence."""
    labels: Annotated[tuple[str, ...], arg(metavar="LABEL …")] = ()
    """Language models: four labels of one token each; chosen by rule if not given."""
    layers: Annotated[tuple[int, ...], arg(metavar="LAYER …")] = ()
    """Where the belief is looked for; six depths if not given."""
    no_where: bool = False
    """Do not look where the belief lives."""
    fresh: int = FRESH
    """Draws of fresh weights; 0 leaves them out."""
    random_init: Annotated[int | None, optional("SEED")] = None
    """Judge the same network with fresh weights of this seed instead."""
    step: Step = None
    revision: Annotated[str | None, optional("REVISION")] = None
    """Branch, tag or commit on the hub."""
    device: str = "cpu"
    """Language models: where to compute."""
    dtype: Annotated[str | None, optional("NAME")] = None
    """Language models: float32, float16 or bfloat16; if not given, float32 where that fits."""
    out: Annotated[Path | None, PageTarget] = None
    json: JsonTarget = None

    def answer(self) -> Answer:
        self._check_options()
        source = find(self.model)
        tunnel = source.kind == "tunnel"
        ours = (self.labels, self.length, self.revision, self.device, self.dtype)
        if tunnel and ours != ((), LENGTH, None, "cpu", None):
            raise ValueError(
                f"{source.name} is judged in its own tunnel: leave out --labels, --length, "
                "--revision, --device and --dtype"
            )
        sequences = self.sequences or SEQUENCES["tunnel" if tunnel else "language"]
        with Console(stderr=True).status("loading") as status:
            found = examine(
                source.name if self.random_init is None else f"{source.name} (fresh weights)",
                self._tunnel(source) if tunnel else self._language(source),
                seeds=self.seeds,
                sequences=sequences,
                fresh=self.fresh,
                layers=self.layers or None,
                where=not self.no_where,
                tell=status.update,
                show=lambda text: print(text, file=sys.stderr),
            )
        return self._answer(found)

    def _check_options(self) -> None:
        """What cannot work is found out before a model is loaded."""
        require_writable(self.out, self.json)
        first, *_, last = LOOKS[0]
        if not first <= self.seeds <= last:
            raise ValueError(f"--seeds must be {first} to {last}, not {self.seeds}.")
        if self.sequences is not None and self.sequences < 4:
            raise ValueError(f"--sequences must be 4 or more, not {self.sequences}.")
        if self.fresh < 0:
            raise ValueError(f"--fresh must be 0 or more, not {self.fresh}.")

    def _tunnel(self, source: Source) -> Open:
        model, tunnel = open_tunnel(tunnel_run(source), self.step)

        def tasks(seed: int | None) -> list[Task]:
            seed = self.random_init if seed is None else 1000 + seed
            own = model if seed is None else build(model.architecture, tunnel, seed).eval()
            return [tunnel_task(TunnelReader(own, source.name), tunnel)]

        return tasks

    def _language(self, source: Source) -> Open:
        known: dict[str, Any] = {}

        def trained() -> Subject:
            subject = load(
                source,
                step=self.step,
                device=self.device,
                dtype=self.dtype,
                random_init=self.random_init,
                revision=self.revision,
            )
            known.update(config=subject.model.config, dtype=subject.model.dtype)
            known.update(tokenizer=subject.tokenizer, plan=subject.plan, name=subject.name)
            return subject

        def fresh(seed: int) -> Subject:
            settings = {"dtype": known["dtype"], "attn_implementation": "eager"}
            model = fresh_model(known["config"], 1000 + seed, settings).to(self.device).eval()
            # nothing of it is looked into, so its parts need not be found
            parts = Structure((), asks_for_attention=False)
            return Subject(model, known["tokenizer"], known["plan"], parts, known["name"])

        return lambda seed: language_tasks(
            trained() if seed is None else fresh(seed), self.labels, self.length
        )

    def _answer(self, found: BayesFound) -> Answer:
        subtitle = (
            f"{len(found.measured[0].seeds)} draws of {found.sequences} sequences · "
            f"{', '.join(f'{one.name}: {one.what}' for one in found.measured)} · missed: mean "
            "KL(Bayes ‖ model) over that of a predictor that collects no evidence; below 0.1 it "
            "tracks exact Bayes, above 0.9 there is no inference"
        )
        skipped = found.skipped
        shown = [f"{found.sentence}\n", found.verdict_rows(), "", found.rows()]
        shown += [f"\n{name}: {reason}." for name, reason in skipped.items()]
        data = found.to_dict()
        if self.out is not None:
            notes = [
                f"{row['task']}: {row['verdict']}. {row['why']}" for row in found.verdict_rows()
            ]
            sections = [Section(rows=found.rows(), skipped=skipped, notes=notes)]
            content = {"title": found.sentence, "subtitle": subtitle, "sections": sections}
            page = write_page(self.out, "bayes.json", data, pictures(found), HEADINGS, content)
            shown.append(f"\nPage: {page}")
        return Answer(data, shown)
