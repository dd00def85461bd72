import pytest
import torch

from bayesattn.tunnels import Recall

DEFAULT = Recall()


def read(tokens, tunnel):
    """Parse a sequence by its marks: what was stored, what was asked, and where."""
    stored, asked, at = {}, [], 0
    while at < len(tokens):
        if tokens[at] == 1:
            _, key, separator, value = tokens[at : at + 4]
            assert separator == 4 and key not in stored and value not in stored.values()
            stored[key] = value
            at += 4
        elif tokens[at] == 3:
            assert tokens[at + 2] == 0
            asked.append((tokens[at + 1], at + 2))
            at += 3
        else:
            assert tokens[at] == 2
            at += 1
    return stored, asked


def test_the_published_layout():
    assert DEFAULT.positions == 4 * 64 + 32 + 3 * 3 + 2 * 16 == 329
    assert DEFAULT.vocabulary == 522
    assert DEFAULT.scored.tolist() == [290, 309, 328]


@pytest.mark.parametrize("tunnel", [DEFAULT, Recall(5, 4, 7, 8, 6)], ids=repr)
def test_labels_are_the_values_stored_with_the_asked_keys(tunnel, generator):
    batch = tunnel.sample(20, generator)
    for row in range(20):
        stored, asked = read(batch.inputs[row].tolist(), tunnel)
        assert len(stored) == tunnel.pairs
        assert all(10 <= key < 10 + tunnel.keys for key in stored)
        assert [position for _, position in asked] == batch.scored.tolist()
        answers = [stored[key] - 10 - tunnel.keys for key, _ in asked]
        assert answers == batch.labels[row].tolist()
    assert (batch.posterior.max(-1).values == 1).all()
    assert torch.equal(batch.posterior.argmax(-1), batch.labels)
    assert batch.labels.min() >= 0 and batch.labels.max() < tunnel.values


def test_keys_and_values_of_one_call_are_independent(generator):
    batch = Recall(pairs=2, queries=1, filler=0, keys=64, values=64).sample(200_000, generator)
    joint = (batch.inputs[:, 1] - 10) * 64 + batch.inputs[:, 3] - 74
    counts = joint.bincount(minlength=64**2).double()
    expected, freedom = 200_000 / 64**2, 64**2 - 1
    spread = ((counts - expected).square() / expected).sum() - freedom
    assert len(counts) == 64**2 and abs(spread) < 4.5 * (2 * freedom) ** 0.5


def test_keys_values_and_queries_are_uniform(generator):
    tunnel = Recall(pairs=2, queries=1, filler=0, keys=3, values=4)
    batch = tunnel.sample(14_400, generator)
    columns = batch.inputs[:, [1, 3, 5, 7]] - torch.tensor([10, 13, 10, 13])
    joint = (columns * torch.tensor([96, 24, 8, 2])).sum(1) + batch.metadata["asked"][:, 0]
    counts = joint.unique(return_counts=True)[1].double()
    assert len(counts) == 3 * 2 * 4 * 3 * 2
    assert ((counts - 100).square() / 100).sum() < 210  # chi-squared, 143 degrees, p = 2e-4


def test_a_key_that_was_never_stored_says_nothing(generator):
    tunnel = Recall(pairs=2, queries=1, filler=0, keys=3, values=4)
    inputs = tunnel.sample(1, generator).inputs
    stored = {int(inputs[0, 1]), int(inputs[0, 5])}
    inputs[0, -2] = ({10, 11, 12} - stored).pop()
    assert tunnel.exact(inputs).tolist() == [[[0.25] * 4]]


def test_bad_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="300 distinct pairs need at least as many keys, not 256"):
        Recall(pairs=300)
    with pytest.raises(ValueError, match="64 distinct pairs need at least as many values, not 63"):
        Recall(values=63)
    with pytest.raises(ValueError, match="queries must be an integer of at least 1, not 0"):
        Recall(queries=0)
    with pytest.raises(ValueError, match="filler must be an integer of at least 0, not -1"):
        Recall(filler=-1)
