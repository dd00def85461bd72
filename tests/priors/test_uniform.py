import math

import torch

from bayesattn.priors import Uniform


def test_every_distance_has_the_same_density():
    prior = Uniform(4)
    assert torch.equal(prior.table(9), torch.zeros(4, 9))
    assert torch.equal(prior.log_prior(torch.tensor([7.5])), torch.zeros(4, 1))


def test_it_stores_nothing():
    assert not list(Uniform(4).parameters())
    assert not Uniform(4).state_dict()


def test_it_reaches_everywhere():
    assert Uniform(4).reach().tolist() == [math.inf] * 4
