"""Ways to capture a language model wrongly, on models whose scores are large, in any dtype.

python -m tests.probes.llm.corruptions      counts of all of them, as a table of markdown
"""

import copy
import dataclasses
import itertools
import os
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext

import torch
from torch.overrides import TorchFunctionMode

from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import Subject
from tests.probes.llm.architectures import MODELS, model_of, prompts_of

PROMPTS = prompts_of(7, 1, 12)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGE = 200.0
"""Scores of attention."""
OF_SCORES = ("q_proj", "k_proj", "qkv", "query_key", "c_attn", "q_norm", "k_norm")
OF_SCORES += ("q_layernorm", "k_layernorm")


class Scores(TorchFunctionMode):
    """Hears the largest score that any softmax over keys is given."""

    def __init__(self, length):
        super().__init__()
        self.length, self.largest = length, 0.0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "softmax" and args[0].shape[-2] == self.length:
            seen = args[0][args[0] > -1e4]
            self.largest = max(self.largest, float(seen.abs().max()))
        return func(*args, **(kwargs or {}))


def largest_score(model, tokens):
    with torch.no_grad(), Scores(tokens.shape[1]) as scores:
        model(tokens)
    return scores.largest


def large(name):
    """A model whose scores reach ±200, before a soft cap if it has one."""
    model, tokens = model_of(name), torch.tensor(PROMPTS[2:])
    caps = [m for m in model.modules() if getattr(m, "attn_logit_softcapping", None)]
    kept = [m.attn_logit_softcapping for m in caps]
    for module in caps:
        module.attn_logit_softcapping = None
    own = [p for n, p in model.named_parameters() if any(part in n for part in OF_SCORES)]
    for _ in range(6):
        factor = (LARGE / largest_score(model, tokens)) ** 0.5
        with torch.no_grad():
            for parameter in own:
                parameter.mul_(factor)
    assert 0.7 * LARGE < largest_score(model, tokens) < 2 * LARGE
    for module, cap in zip(caps, kept, strict=True):
        module.attn_logit_softcapping = cap
    return model


SIZES = {"normal": model_of, "large": large}


def subjects(name, sizes=SIZES, dtypes=DTYPES):
    """("normal" or "large", dtype, subject) for each."""
    for size in sizes:
        model = SIZES[size](name)
        for dtype in dtypes:
            yield size, dtype, Subject.of(copy.deepcopy(model).to(dtype), name=name)


def changed(subject, at, **parts):
    """The subject with other parts of layer `at`."""
    layers = list(subject.parts.layers)
    layers[at] = dataclasses.replace(layers[at], **parts)
    return dataclasses.replace(subject, parts=dataclasses.replace(subject.parts, layers=(*layers,)))


def reordered(heads, columns):
    return dataclasses.replace(heads, columns=columns)


def as_widths(heads):
    """Columns read as [D, G] instead of [G, D]."""
    return reordered(heads, heads.columns.flatten().view(heads.width, heads.count).T)


def as_blocks(layer):
    """Columns of keys and values of a fused projection, read as if it were laid out otherwise."""
    key, value = layer.key_projection, layer.value
    if key is None or key.module is not value.module:
        return
    size, count = key.columns.numel(), 1 + max(int(key.columns.max()), int(value.columns.max()))
    ends = torch.arange(max(count, 3 * size))
    by_part = [ends[-2 * size : -size].view_as(key.columns), ends[-size:].view_as(key.columns)]
    by_head = ends[: 3 * size].view(key.count, 3, key.width)[:, 1:].unbind(1)
    for columns in (by_part, by_head):
        if max(int(x.max()) for x in columns) < count:
            yield columns


def queries(layer):
    """What puts out queries where keys are expected, or None."""
    attention, key = layer.attention, layer.key
    if key.module is layer.value.module:
        width = key.columns.max() + 1
        left = torch.ones(int(max(width, layer.value.columns.max() + 1)), dtype=torch.bool)
        for heads in (key, layer.value):
            left[heads.columns.flatten()] = False
        own = left.nonzero().flatten()[: key.columns.numel()]
        return (
            reordered(key, own.view_as(key.columns)) if own.numel() == key.columns.numel() else None
        )
    for name, module in attention.named_modules():
        if module is key.module:
            other = name.replace("k_", "q_", 1)
            return Heads(attention.get_submodule(other), key.layout, key.columns)
    return None


@contextmanager
def spoiled_rows(layer, spoil):
    def hook(_, __, out):
        return (*out[: layer.rows], spoil(out[layer.rows]), *out[layer.rows + 1 :])

    handle = layer.attention.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Writing(Heads):
    """Changes what it reads."""

    def read(self, output):
        return super().read(output.mul_(1.0625))


def corruptions(subject):
    """(kind, what must not be measured then, subject, context) for each that can be made."""
    first, layer = subject.parts.layers
    still = nullcontext()
    for name in ("value", "key", "key_projection"):
        heads = getattr(layer, name)
        if heads is None:
            continue
        refused = {"value": "values", "key": "keys", "key_projection": "key weights"}[name]

        def with_columns(columns, heads=heads, name=name):
            return changed(subject, 1, **{name: reordered(heads, columns)})

        if heads.count > 1:
            wrong = changed(subject, 1, **{name: as_widths(heads)})
            yield "split wrongly", refused, wrong, still
            yield "heads permuted", refused, with_columns(heads.columns.flip(0)), still
        other = changed(subject, 1, **{name: getattr(first, name)})
        yield "layer off by one", refused, other, still
    for columns in as_blocks(layer):
        for at, (name, refused) in enumerate({"key": "keys", "value": "values"}.items()):
            heads = getattr(layer, name)
            if heads.module is layer.value.module and not torch.equal(columns[at], heads.columns):
                wrong = changed(subject, 1, **{name: reordered(heads, columns[at])})
                yield "split wrongly", refused, wrong, still
    if (query := queries(layer)) is not None:
        yield "queries for keys", "keys", changed(subject, 1, key=query), still
        if layer.key is layer.key_projection:
            wrong = changed(subject, 1, key_projection=query)
            yield "queries for keys", "key weights", wrong, still
    rows = spoiled_rows(layer, lambda x: x.flip(1))
    yield "heads permuted", "attention", subject, rows
    for name, refused in {
        "attention": "attention",
        "output": "outputs",
        "block": "residual",
    }.items():
        wrong = changed(subject, 1, **{name: getattr(first, name)})
        yield "layer off by one", refused, wrong, still
    spoiling = Writing(**vars(layer.value))
    yield "a hook that changes something", "logits", changed(subject, 1, value=spoiling), still
    yield "rows that sum to more", "attention", subject, spoiled_rows(layer, lambda x: x * 1.0625)


def missed(subject, refused, context):
    with context:
        found = check_prompts(subject, PROMPTS)
    return not (refused in found.refused or "logits" in found.wrong)


def count(names=MODELS, tell=lambda *_: None, some=False):
    """Counts of models, false refusals, doubts, corruptions and those missed.

    With `some` each model has one size and dtype: neighbours in the list have different ones.
    """
    counts = Counter()
    ways = itertools.cycle(([size], [dtype]) for size in SIZES for dtype in DTYPES)
    for name, way in zip(names, ways, strict=False):
        for size, dtype, subject in subjects(name, *(way if some else ())):
            key = (str(dtype).removeprefix("torch."), size)
            found = check_prompts(subject, PROMPTS)
            counts[*key, "models"] += 1
            counts[*key, "refused"] += not found.good
            counts[*key, "in doubt"] += bool(found.doubts)
            if not found.good:
                tell(name, *key, found.wrong)
            for kind, refused, wrong, context in corruptions(subject):
                counts[kind, "made"] += 1
                counts[*key, "corruptions"] += 1
                if missed(wrong, refused, context):
                    counts[kind, "missed"] += 1
                    counts[*key, "missed"] += 1
                    tell("missed", name, *key, kind, refused)
    return counts


def main():
    counts = count(sys.argv[1:] or MODELS, tell=lambda *words: print(*words, file=sys.stderr))
    columns = ("models", "refused", "in doubt", "corruptions", "missed")
    print("| dtype | scores |", " | ".join(columns), "|")
    print("|---" * (2 + len(columns)) + "|")
    for dtype in DTYPES:
        for size in ("normal", "large"):
            key = (str(dtype).removeprefix("torch."), size)
            print("|", " | ".join([*key, *(str(counts[*key, name]) for name in columns)]), "|")
    print("\n| corruption | made | missed |\n|---|---|---|")
    for kind in dict.fromkeys(key[0] for key in counts if key[1] == "made"):
        print(f"| {kind} | {counts[kind, 'made']} | {counts[kind, 'missed']} |")


if __name__ == "__main__":
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    main()
