"""Loads, each in a process of its own: prints seconds and the most memory it took, as JSON.

python -m tests.robust.loads LOAD FOLDER SIZE
"""

import json
import resource
import sys
import time
from pathlib import Path

MEBIBYTE = 1 << 20


def metrics(folder, size):
    """A page of a run whose metrics.jsonl has so many MiB."""
    from bayesattn.report.runs import render_runs
    from bayesattn.runs import Run
    from bayesattn.runs.metrics import written

    run = Run.create(folder / "run", {"training": {}})
    step = left = 0
    with (run.folder / "metrics.jsonl").open("w") as file:
        while left < size * MEBIBYTE:
            step += 1
            numbers = {"loss": 1 / step, "gradient": 0.25, "lr": 0.001, "mae": 2 / step}
            left += file.write(written({"step": step, **numbers, "seconds": 0.01 * step}))
    yield
    page = render_runs([run.folder])
    yield {"page MiB": round(len(page) / MEBIBYTE, 2), "lines": step}


def runs(folder, size):
    """A page of so many runs with 200 lines of metrics each."""
    from bayesattn.report.runs import render_runs
    from bayesattn.runs import Run

    for number in range(size):
        run = Run.create(folder / str(number), {"training": {"seed": number}})
        for step in range(200):
            run.log({"step": step, "loss": 1 / (1 + step), "mae": 2 / (1 + step)})
    yield
    page = render_runs([folder / str(number) for number in range(size)])
    yield {"page MiB": round(len(page) / MEBIBYTE, 2)}


def prompts(folder, size):
    """So many prompts, looked at in a small language model."""
    from bayesattn.probes.llm.capture import capture_prompts
    from bayesattn.probes.llm.prompts import given, read_prompts
    from bayesattn.probes.llm.subject import load

    path = folder / "prompts.txt"
    with path.open("w") as file:
        for number in range(size):
            file.write(f"The grass is {number} times as green as the sky was blue\n")
    subject = load("zoo:passkey")
    yield
    found = given(subject, read_prompts(path), "many", "the lines")
    states = capture_prompts(subject, found.tokens, ["values", "residual", "logits"])
    yield {"read": len(found), "captured": len(states.logits)}


def corpus(folder, size):
    """Tokens of a text of so many MiB, written and found again."""
    from bayesattn.corpora import load_tokenizer, prepare

    line = "The grass is green and the sky was blue there and back again.\n"
    with (folder / "text.txt").open("w") as file:
        for _ in range(size):
            file.write((line * (MEBIBYTE // len(line) + 1))[:MEBIBYTE])
    yield
    for _ in range(2):
        store = prepare(str(folder / "text.txt"), load_tokenizer("words"), folder / "store")
    yield {"tokens": store.tokens("train")}


def attend(folder, size):
    """So many calls of attend, forward and backward, in shapes that change all the time."""
    import torch

    from bayesattn import GeneralizedGaussian, attend

    torch.set_num_threads(1)
    prior = GeneralizedGaussian(4)
    yield
    for call in range(size):
        length = 1 + call % 97
        q, k, v = (torch.randn(1, 4, length, 8, requires_grad=call % 10 == 0) for _ in range(3))
        out = attend(q, k, v, prior=prior)
        if call % 10 == 0:
            out.sum().backward()
            prior.zero_grad()
    yield {"calls": size}


def main(load, folder, size):
    """What memory and time the load took beyond what was there before it."""
    steps = {f.__name__: f for f in (metrics, runs, prompts, corpus, attend)}[load](folder, size)
    next(steps)
    before, start = peak(), time.perf_counter()
    found = next(steps)
    found |= {"seconds": round(time.perf_counter() - start, 2), "before MiB": round(before)}
    print(json.dumps({**found, "peak MiB": round(peak())}))


def peak():
    """Most resident memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
