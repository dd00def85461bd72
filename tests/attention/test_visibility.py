"""Runs, counts and masks against each other and against the sentence they implement."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesattn.attention.visibility import Visibility, first_visible


@st.composite
def visibilities(draw):
    offset, queries, batch = (draw(st.integers(lo, hi)) for lo, hi in ((0, 6), (1, 9), (1, 3)))
    keys = offset + queries
    rows = st.lists(st.integers(0, 2), min_size=keys, max_size=keys)
    documents = torch.tensor([draw(rows) for _ in range(batch)]).cumsum(1) // 2
    padding = torch.tensor([draw(st.integers(0, keys)) for _ in range(batch)])
    documents = documents if draw(st.booleans()) else None
    padding = padding if draw(st.booleans()) else None
    window = draw(st.none() | st.integers(1, 12))
    first = first_visible(queries, offset, documents, padding)
    return Visibility(queries, offset, first, window), documents, padding, batch


@settings(deadline=None, max_examples=200)
@given(visibilities())
def test_mask_is_the_definition(case):
    seen, documents, padding, batch = case
    mask = seen.mask(torch.device("cpu"))[:, 0].expand(batch, -1, -1)
    for b in range(batch):
        for row in range(seen.num_queries):
            i = seen.offset + row
            for j in range(seen.end):
                visible = j <= i and (seen.window is None or i - j < seen.window)
                if padding is not None:
                    visible &= j >= int(padding[b])
                if documents is not None:
                    visible &= len(set(documents[b, j : i + 1].tolist())) <= 1
                assert bool(mask[b, row, j]) == visible


@settings(deadline=None, max_examples=200)
@given(visibilities())
def test_count_and_runs_agree_with_the_mask(case):
    seen, _, _, batch = case
    mask = seen.mask(torch.device("cpu"))[:, 0].expand(batch, -1, -1)
    assert torch.equal(seen.count(torch.device("cpu")).expand(batch, -1), mask.sum(-1))
    different = torch.arange(batch)[:, None]  # a factor of its own for each sequence
    for factors in ([], [different], [different[:1]]):
        rebuilt = torch.zeros(batch, seen.num_queries, seen.end, dtype=torch.bool)
        groups = seen.groups(*factors)
        for group in groups:
            alone = torch.arange(batch)[group.rows].numel() == 1
            assert alone or not factors or len(factors[0]) == 1
            assert group.one in torch.arange(batch)[group.rows]
            for run in group.runs:
                for row in range(run.start, run.stop):
                    i = seen.offset + row
                    low = run.first if seen.window is None else max(run.first, i - seen.window + 1)
                    assert low <= i
                    assert not rebuilt[group.rows, row].any()
                    rebuilt[group.rows, row, low : i + 1] = True
        assert torch.equal(rebuilt, mask)
        if not factors:
            alike = 1 if seen.first is None else len(seen.first.unique(dim=0))
            assert len(groups) == alike
