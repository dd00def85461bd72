"""Every measurement of one language model; one that fails says why, and the others go on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayesattn.probes.llm.attention import Focusing, measure_focusing
from bayesattn.probes.llm.criteria import Criterion, calibrated, paper_criteria
from bayesattn.probes.llm.keys import KeyLayer, measure_heads, measure_tokens, measure_weights
from bayesattn.probes.llm.observation import Observed, attempt
from bayesattn.probes.llm.values import DRAWS, PERMUTATIONS, States, measure_states


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found; what failed is empty, and in `failed`."""

    model: dict[str, Any]
    """Name, architecture and sizes."""
    prompts: dict[str, Any]
    """Which prompts, and by what rule."""
    check: dict[str, Any]
    """The self-check of the capture."""
    bits: list[float]
    """Entropy of the next token after each prompt."""
    control_bits: list[float] | None
    """The same with fresh weights."""
    states: list[States] = field(default_factory=list[States])
    keys: list[KeyLayer] = field(default_factory=list[KeyLayer])
    focusing: Focusing | None = None
    failed: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the numbers has to know."""

    @property
    def name(self) -> str:
        """Of the model."""
        return str(self.model["name"])

    @property
    def paper(self) -> list[Criterion]:
        """The authors' criteria."""
        return paper_criteria(self.states, self.keys, self.focusing)

    @property
    def ours(self) -> list[Criterion]:
        """The same questions against nulls."""
        return calibrated(self.states, self.keys, self.focusing)


def examine(
    observed: Observed,
    control: Observed | None = None,
    *,
    model: dict[str, Any],
    prompts: dict[str, Any],
    check: dict[str, Any],
    notes: Sequence[str] = (),
    draws: int = DRAWS,
    permutations: int = PERMUTATIONS,
    tell: Callable[[str], None] = lambda _: None,
) -> Examination:
    """Measure everything that was observed.

    Args:
        observed: the model and its prompts.
        control: the same network with fresh weights, on the same prompts.
        model: what it is, for the record.
        prompts: what they are, for the record.
        check: what the self-check found, for the record.
        notes: what a reader has to know.
        draws: of every bootstrap.
        permutations: behind every p.
        tell: is told which measurement comes next.
    """
    failed = dict(observed.failed)
    states: list[States] = []
    for (layer, kind), rows in observed.states.items():
        where = f"{kind} of layer {layer}"
        tell(where)
        beside = control.states.get((layer, kind)) if control else None
        options: dict[str, Any] = {
            "layer": layer,
            "kind": kind,
            "draws": draws,
            "permutations": permutations,
            "sources": prompts.get("sources"),
            "control": None if control is None or beside is None else (beside, control.bits),
        }
        attempt(
            failed,
            where,
            lambda rows=rows, options=options: states.append(
                measure_states(rows, observed.bits, **options)
            ),
        )
    tell("keys")
    keys: list[KeyLayer] = []
    attempt(failed, "keys", lambda: keys.extend(_keys(observed, control)))
    tell("attention")
    focusing: list[Focusing] = []
    if observed.rows is not None:
        rows, beside_rows = observed.rows, control.rows if control else None
        attempt(
            failed,
            "attention",
            lambda: focusing.append(
                measure_focusing(rows, beside_rows, draws=draws, permutations=permutations)
            ),
        )
    return Examination(
        model=model,
        prompts=prompts,
        check=check,
        bits=observed.bits.tolist(),
        control_bits=None if control is None else control.bits.tolist(),
        states=states,
        keys=keys,
        focusing=focusing[0] if focusing else None,
        failed=failed,
        notes=list(notes),
    )


def _keys(observed: Observed, control: Observed | None) -> list[KeyLayer]:
    found: list[KeyLayer] = []
    for layer, heads in enumerate(observed.heads):

        def own(name: str, layer: int = layer) -> Any:
            part = getattr(observed, name)
            return part[layer] if part else None

        def fresh(name: str, layer: int = layer) -> Any:
            part = getattr(control, name) if control else None
            return part[layer] if part else None

        tokens, turned, weights = own("tokens"), own("turned_tokens"), own("weights")
        found.append(
            KeyLayer(
                layer=layer,
                weights=(
                    None
                    if weights is None
                    else measure_weights(weights, observed.width, fresh("weights"))
                ),
                weights_by_head=None if weights is None else weights.tolist(),
                tokens=None if tokens is None else measure_tokens(tokens, fresh("tokens")),
                turned_tokens=(
                    None if turned is None else measure_tokens(turned, fresh("turned_tokens"))
                ),
                heads=measure_heads(heads, fresh("heads")),
            )
        )
    return found
