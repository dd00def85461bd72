import torch

from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.training.schedule import MASK, WATCH_SEED, _mix, step_seed


def draw(seed):
    return torch.rand(4, generator=torch.Generator().manual_seed(seed))


def test_torch_keeps_only_32_bits_of_a_seed():
    """Should this ever change, hashes of 63 bits would do."""
    assert torch.equal(draw(5), draw(5 + 2**32))


def test_no_two_steps_share_a_seed():
    seeds = [step_seed(3, step, rank, 2) for step in range(100_000) for rank in (0, 1)]
    assert len(set(seeds)) == len(seeds)


def test_mixing_is_a_bijection():
    """Each of its stages can be undone: odd factors have inverses, shifts unroll."""
    for x in [0, 1, 2, 12345, MASK - 1, MASK, *range(10**6, 10**6 + 1000)]:
        y = _mix(x)
        y ^= (y >> 15) ^ (y >> 30)
        y = (y * pow(0x119DE1F3, -1, 2**31)) & MASK
        y ^= y >> 16
        assert (y * pow(0x45D9F3B, -1, 2**31)) & MASK == x


def test_evaluations_never_see_training_data():
    seeds = [step_seed(seed, step) for seed in range(20) for step in range(1000)]
    assert all(0 <= seed < 2**31 for seed in seeds)
    for seed in (WATCH_SEED, EVAL_SEED):
        assert seed & 2**31
    assert WATCH_SEED != EVAL_SEED


def test_data_and_noise_are_independent_and_so_are_trainings():
    data = {step_seed(0, step) for step in range(1000)}
    assert data.isdisjoint(step_seed(0, step, purpose="noise") for step in range(1000))
    assert data.isdisjoint(step_seed(1, step) for step in range(1000))
    assert step_seed(0, 7, 1, 2) == step_seed(0, 15)


def test_neighbouring_steps_look_unrelated():
    draws = torch.stack([draw(step_seed(0, step)) for step in range(2000)])
    table = torch.corrcoef(torch.cat([draws[:-1], draws[1:]], dim=1).T)
    assert (table - torch.eye(8)).abs().max() < 0.1
