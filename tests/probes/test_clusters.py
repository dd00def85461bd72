"""Planted clusters and simplices are found; noise has none."""

import pytest
import torch
from scipy.stats import binom

from bayesattn.probes.clusters import clusters, measure_clusters, modes, silhouettes
from bayesattn.probes.measured import NotApplicableError, held_out, plain
from bayesattn.tunnels import Bijection, Recall
from tests.probes.common import BIJECTION, FILTER, OTHERS, model_of


def slow_silhouettes(x, labels):
    """The definition, one point at a time."""
    values = []
    for i in range(len(x)):
        mean = {
            int(label): [
                float((x[i] - x[j]).norm()) for j in range(len(x)) if labels[j] == label and j != i
            ]
            for label in labels.unique()
        }
        mean = {label: sum(each) / len(each) for label, each in mean.items() if each}
        if int(labels[i]) not in mean:
            values.append(0.0)
            continue
        a = mean.pop(int(labels[i]))
        b = min(mean.values())
        values.append((b - a) / max(a, b))
    return torch.tensor(values, dtype=x.dtype)


def test_silhouettes_by_the_definition(generator):
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (40,), generator=generator)
    labels[0] = 9  # alone
    distance = torch.cdist(x, x)
    torch.testing.assert_close(silhouettes(distance, labels), slow_silhouettes(x, labels))
    labels[5:10] = -1  # nowhere
    found = silhouettes(distance, labels)
    kept = labels >= 0
    torch.testing.assert_close(found[kept], slow_silhouettes(x[kept], labels[kept]))
    assert found[5:10].tolist() == [0] * 5


def beliefs(count, steps, generator, sharp=2.0):
    return (sharp * torch.randn(count, steps, 4, generator=generator)).double().softmax(-1)


def test_clusters_that_were_planted(generator):
    posterior = beliefs(80, 5, generator)
    centres = 10 * torch.randn(4, 12, generator=generator)
    x = centres[modes(posterior)] + 0.1 * torch.randn(80, 5, 12, generator=generator)
    found = clusters(x, posterior, permutations=19)
    assert found.outcomes == 4
    assert found.silhouette.value > 0.9 and found.silhouette.p == 0.05
    assert found.silhouette.nulls["other sequences"] < 0.05


def test_a_linear_image_of_the_simplex(generator):
    posterior = beliefs(80, 5, generator, sharp=1.0)
    x = posterior @ torch.randn(4, 12, generator=generator, dtype=torch.float64)
    found = clusters(x, posterior, permutations=19)
    assert found.simplex.value > 0.99 and found.simplex.p == 0.05
    assert found.simplex.nulls["other sequences"] < 0.05
    # entropy is no linear function of the belief
    assert found.entropy.value < 0.5


def test_noise_has_no_clusters(generator):
    """At level 5%, 200 draws of pure noise are called clustered, or a simplex, about ten times."""
    clustered = simplex = 0
    for draw in range(200):
        x = torch.randn(24, 3, 4, generator=generator)
        found = clusters(x, beliefs(24, 3, generator), permutations=19, seed=draw)
        clustered += found.silhouette.p <= 0.05
        simplex += found.simplex.p <= 0.05
    for count in (clustered, simplex):
        assert binom.ppf(0.001, 200, 0.05) <= count <= binom.ppf(0.999, 200, 0.05)


@pytest.mark.parametrize("name", ["ggd", *OTHERS])
def test_every_architecture_has_states(name):
    model, initial = model_of(name), model_of(name, seed=1)
    found = measure_clusters(model, held_out(FILTER, 24), initial=initial, permutations=5)
    assert [c.layer for c in found] == [-1, 0, 1]
    for c in found:
        for part in (c.silhouette, c.simplex, c.entropy):
            assert "untrained" in part.nulls and "other sequences" in part.nulls
        assert plain(c)["simplex"]["value"] == c.simplex.value


def test_ties_have_no_mode(generator):
    assert modes(torch.tensor([[[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]])).tolist() == [[-1, 0]]
    for tunnel in (BIJECTION, Bijection(5)):
        with pytest.raises(NotApplicableError, match="has ties"):
            measure_clusters(model_of("ggd", tunnel), held_out(tunnel, 16))
    recall = Recall(pairs=3, keys=5, values=6, filler=2)
    assert measure_clusters(model_of("ggd", recall), held_out(recall, 24), permutations=2)
    with pytest.raises(ValueError, match="too few"):
        measure_clusters(model_of("ggd"), held_out(FILTER, 4))
