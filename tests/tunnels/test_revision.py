import numpy as np
import pytest
import torch

from bayesattn.tunnels import Revision


@pytest.mark.parametrize(
    "tunnel",
    [Revision(), Revision(hypotheses=3, evidence=7, symbols=4, min_prob=0.0, grid=None)],
    ids=repr,
)
def test_posterior_is_the_product_rule_by_hand(tunnel, generator):
    batch = tunnel.sample(10, generator)
    for row in range(10):
        emission = batch.metadata["emission"][row].numpy()
        weight = np.ones(tunnel.hypotheses)
        for step, symbol in enumerate(batch.metadata["evidence"][row].tolist()):
            weight = weight * emission[:, symbol]
            expected = weight / weight.sum()
            np.testing.assert_allclose(batch.posterior[row, step], expected, rtol=0, atol=1e-12)


def test_layout(generator):
    tunnel = Revision(hypotheses=3, evidence=2, symbols=4, filler=1)
    assert (tunnel.positions, tunnel.prefix, tunnel.features) == (6, 4, 11)
    assert tunnel.scored.tolist() == [4, 5]
    batch = tunnel.sample(5, generator)
    expected = torch.zeros(5, 6, 11)
    expected[:, :3, :4] = batch.metadata["emission"].log().float()
    expected[:, :3, 4:7] = torch.eye(3)
    expected[:, 4:, 7:] = torch.nn.functional.one_hot(batch.metadata["evidence"], 4).float()
    torch.testing.assert_close(batch.inputs, expected)


def test_the_source_stays_the_same_and_the_matrix_is_fresh(generator):
    batch = Revision().sample(500, generator)
    assert (batch.labels == batch.labels[:, :1]).all()
    assert len(batch.labels[:, 0].unique()) == 16
    matrices = batch.metadata["emission"].flatten(1)
    assert len(matrices.unique(dim=0)) == 500


def test_no_symbol_belongs_to_a_hypothesis_in_all_episodes(generator):
    """With a fixed matrix, or a fixed diagonal, evidence alone would tell the source."""
    tunnel = Revision(hypotheses=4, symbols=4)
    batch = tunnel.sample(20_000, generator)
    joint = torch.zeros(16).index_add_(
        0, batch.labels[:, 0] * 4 + batch.metadata["evidence"][:, 0], torch.ones(20_000)
    )
    assert ((joint - 1250).square() / 1250).sum() < 45  # chi-squared, 15 degrees, p = 1e-4


def test_bad_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="hypotheses must be an integer of at least 2, not 1"):
        Revision(hypotheses=1)
    with pytest.raises(ValueError, match="min_prob must lie between 0 and 1/8"):
        Revision(min_prob=0.2)
