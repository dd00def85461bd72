"""What everyone can play with on a page, from models that come along: `make results` writes it.

    python -m bayesattn.report.gallery       writes gallery.json, which every page then shows

Attention of a language model is kept as likelihood and prior; the page multiplies them.
"""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesattn.claims.exhibits import belief_exhibit
from bayesattn.corpora import NeedleMaker
from bayesattn.evals.priors import decomposed
from bayesattn.figures.beliefs import mixed_colours, plane_of
from bayesattn.ledger.study import Exhibit
from bayesattn.ledger.typed import to_plain
from bayesattn.models.open import LanguageModel, open_language, open_tunnel, tunnel_run
from bayesattn.probes.beliefs import measure_beliefs
from bayesattn.probes.examine_tunnel import TunnelSubject
from bayesattn.probes.measured import held_out
from bayesattn.source import DEFAULT

FILE = Path(__file__).with_name("gallery.json")
FLOOR = -2000
"""Hundredths of a nat: what is less probable is drawn as this."""
POINTS = 700
LAYERS = 6
"""Of a large model, that are shown."""
TEXT = (
    "Alice hid the silver key in the garden. Bob looked for the key all day. "
    "In the morning Alice found the silver"
)
ANSWER = " key"


def bijection() -> Exhibit:
    """A model that does Bayes' rule: step by step."""
    return belief_exhibit(
        *open_tunnel("zoo:bijection-10-returning"),
        title="A transformer believes what Bayes believes, step after step",
        caption="A model of 84,000 parameters learns a secret one-to-one mapping from examples. "
        "Orange is the exact posterior: what it must equal. Press play.",
    )


def hidden_markov() -> Exhibit:
    """A model that filters a hidden state."""
    return belief_exhibit(
        *open_tunnel("zoo:hmm-5"),
        title="A transformer filters a hidden Markov model whose rules stand in its prompt",
        caption="The tables of transitions and emissions stand before the sequence of symbols. "
        "Orange is the exact forward algorithm.",
    )


def fractal() -> Exhibit:
    """Beliefs about a hidden state, read from the residual stream, beside what is there anyway."""
    model, tunnel = open_tunnel("zoo:mess3")
    initial = TunnelSubject.load(tunnel_run("zoo:mess3"), None).initial
    found = measure_beliefs(model, tunnel, held_out(tunnel, 500), initial)
    exact = found.exact.flatten(0, 1)
    plane = plane_of(exact)
    chosen = torch.linspace(0, len(exact) - 1, min(POINTS, len(exact))).long()
    whole = found.whole.r_squared
    shown = {
        "exact beliefs": found.exact,
        f"read from all layers, R² {whole.value:.3f}": found.trained,
    }
    title = f"The fractal of beliefs can be read from the network (R² {whole.value:.3f})"
    if found.untrained is not None:
        before = f"R² {whole.nulls['untrained']:.3f}"
        shown[f"the same before training, {before}"] = found.untrained
        title += f", but also before its training ({before})"
    panels = [
        {"name": name, "points": _plain(plane.place(own.view_as(exact))[chosen], 3)}
        for name, own in shown.items()
    ]
    colours = (255 * mixed_colours(exact)[chosen]).round().int().tolist()
    return Exhibit(
        kind="simplex",
        title=title,
        caption="Each point is a belief about which of its three states Mess3 is in, after some "
        f"tokens. Colours are those of the exact belief. {plane.said}",
        data={"panels": panels, "colours": [f"#{bytes(own).hex()}" for own in colours]},
    )


@torch.no_grad()
def passkey() -> Exhibit:
    """Our own language model on a prompt with a needle."""
    opened = open_language("zoo:passkey")
    prompts = NeedleMaker(opened.tokenizer).prompts(72, [0.3], 1, 0)
    answer = prompts.answers[0]
    tokens = torch.cat([prompts.tokens[0], answer[:-1]])
    factors = decomposed(opened.model, tokens[None])  # type: ignore[arg-type]
    layers = [
        {"name": f"layer {number}", "likelihood": own.likelihood[0], "prior": own.prior[0]}
        for number, own in factors.items()
    ]
    parts = [
        torch.stack([own.prior[0], own.likelihood[0], own.posterior[0]])[:, :, -1]
        for own in factors.values()
    ]
    mass = torch.stack(parts, 1)  # [3, layers, heads, keys], of the last token
    # where neither factor alone says what both together do
    gain = mass[2] - mass[:2].amax(0)
    at, head, key = (int(own) for own in torch.unravel_index(gain.argmax(), gain.shape))
    shares = mass[:, at, head, key].tolist()
    word = str(opened.tokenizer.decode([int(tokens[key])])).strip()
    return _attention(
        opened,
        tokens,
        layers,
        start=(at, head),
        title=f"Head {head} of layer {at} looks {len(tokens) - 1 - key} tokens back, at “{word}”: "
        f"the prior gives it {shares[0]:.0%}, the content {shares[1]:.0%}, both {shares[2]:.0%}",
        caption="Prior × likelihood = posterior in zoo:passkey, for every token, layer and head. "
        "Point at a token to see where it looks. Dashed: attention to all tokens alike.",
    )


@torch.no_grad()
def smollm() -> Exhibit:
    """SmolLM2 on an English text: RoPE has no prior, so that the likelihood is the posterior."""
    opened = open_language(DEFAULT, eager=True, dtype="float32")
    tokens = opened.tokenizer(TEXT, return_tensors="pt")["input_ids"][0]
    rows: Any = opened.model(tokens[None], output_attentions=True).attentions
    answer = opened.tokenizer(ANSWER, add_special_tokens=False)["input_ids"][0]
    key = (tokens == answer).nonzero()[0]
    mass = torch.stack([row[0][:, -1, key].sum(-1) for row in rows])
    best, head = divmod(int(mass.argmax()), mass.shape[1])
    kept = sorted({*(round(at) for at in torch.linspace(0, len(rows) - 1, LAYERS).tolist()), best})
    layers = [{"name": f"layer {at}", "likelihood": rows[at][0], "prior": None} for at in kept]
    return _attention(
        opened,
        tokens,
        layers,
        start=(kept.index(best), head),
        title=f"SmolLM2 looks up what followed the word before: head {head} of layer {best} puts "
        f"{float(mass.max()):.0%} on “{ANSWER.strip()}”",
        caption="Attention of SmolLM2-135M on a text, in some of its layers. With RoPE, positions "
        "are part of the content, so the prior is uniform: the dashed line. Point at a token.",
    )


def _attention(
    opened: LanguageModel,
    tokens: Tensor,
    layers: Sequence[dict[str, Any]],
    *,
    start: tuple[int, int],
    title: str,
    caption: str,
) -> Exhibit:
    logits = opened.model(tokens[None]).logits[0].double().softmax(-1)
    top = logits.max(-1)

    def word(token: Any) -> str:
        return str(opened.tokenizer.decode([int(token)]))

    data = {
        "tokens": [word(token) for token in tokens],
        "next": [
            [word(at), round(float(p), 4)] for p, at in zip(top.values, top.indices, strict=True)
        ],
        "start": list(start),
        "layers": [
            {
                "name": own["name"],
                "likelihood": _logs(own["likelihood"]),
                "prior": None if own["prior"] is None else _logs(own["prior"]),
            }
            for own in layers
        ],
    }
    return Exhibit(kind="attention", title=title, caption=caption, data=data)


def _logs(share: Tensor) -> str:
    """Logarithms in hundredths of a nat, head by head, row by row, of the keys that a query sees.

    As base64 of 16-bit numbers, lowest byte first.
    """
    logs = (100 * share.double().log()).clamp(min=FLOOR).round()
    seen = torch.tril(torch.ones_like(logs[0], dtype=torch.bool))
    return base64.b64encode(logs[:, seen].numpy().astype("<i2").tobytes()).decode("ascii")


def _plain(x: Tensor, digits: int) -> Any:
    return x.detach().double().round(decimals=digits).tolist()


MAKERS: dict[str, Callable[[], Exhibit]] = {
    own.__name__: own for own in (bijection, hidden_markov, fractal, passkey, smollm)
}


def write(path: Path = FILE) -> None:
    """Make all of them."""
    made = {name: to_plain(make()) for name, make in MAKERS.items()}
    path.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    write()
