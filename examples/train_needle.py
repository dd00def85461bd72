"""Train a tiny decoder with a learned prior to find a needle, then test it on longer texts.

    python examples/train_needle.py [STEPS]

Each sequence is noise with one marker in it, followed by a symbol. It ends with the marker again;
the model must name the symbol. Trained at 64 tokens, tested up to 1,024. Half a minute on one core.
"""

import sys

import torch

from bayesattn.models import SIZES, BayesForCausalLM, parameter_groups
from bayesattn.priors import GeneralizedGaussian

SYMBOLS, NOISE, MARKER = 8, 23, 31
VOCABULARY = SYMBOLS + NOISE + 1


def sample(batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """[batch, length + 1] tokens; the last one is the answer."""
    tokens = torch.randint(SYMBOLS, MARKER, (batch, length + 1), generator=generator)
    needle = torch.randint(0, length - 3, (batch,), generator=generator)
    answer = torch.randint(SYMBOLS, (batch,), generator=generator)
    rows = torch.arange(batch)
    tokens[rows, needle], tokens[rows, needle + 1] = MARKER, answer
    tokens[:, -2], tokens[:, -1] = MARKER, answer
    return tokens


@torch.no_grad()
def accuracy(model: BayesForCausalLM, length: int) -> float:
    tokens = sample(64, length, torch.Generator().manual_seed(1))
    logits = model(tokens[:, :-1], logits_to_keep=1).logits[:, -1]
    return (logits.argmax(-1) == tokens[:, -1]).float().mean().item()


def main(steps: int) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    config = SIZES["nano"](vocab_size=VOCABULARY, prior_options={"init": "mixed"})
    model = BayesForCausalLM(config)
    groups = parameter_groups(model, weight_decay=0.1, lr=3e-3)
    optimizer = torch.optim.AdamW(groups)
    for step in range(steps):
        tokens = sample(32, 64, generator)
        logits = model(tokens[:, :-1], logits_to_keep=1).logits[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    for length in (64, 256, 1024):
        print(f"length {length}: accuracy {accuracy(model, length):.2f}, chance {1 / SYMBOLS:.2f}")
    priors = [module for module in model.modules() if isinstance(module, GeneralizedGaussian)]
    for layer, prior in enumerate(priors):
        print(f"layer {layer}: beta", ", ".join(f"{beta:.2f}" for beta in prior.beta.tolist()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
