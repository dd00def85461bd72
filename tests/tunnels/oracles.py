"""Posteriors by enumerating every hypothesis, and repairs one unit at a time."""

import itertools
import math

import numpy as np
import torch

from bayesattn.bits import entropy


def enumerate_permutations(alphabet, keys, values):
    """P(value of keys[-1]) over all permutations consistent with the pairs before it."""
    counts = np.zeros(alphabet)
    for permutation in itertools.permutations(range(alphabet)):
        if all(permutation[k] == v for k, v in zip(keys[:-1], values, strict=True)):
            counts[permutation[keys[-1]]] += 1
    return counts / counts.sum()


def enumerate_paths(initial, transition, emission, observations):
    """Filtered and predicted beliefs at the last step, over all state paths."""
    states, length = len(initial), len(observations)
    filtered, predicted = np.zeros(states), np.zeros(states)
    for path in itertools.product(range(states), repeat=length):
        prior = initial[path[0]] * math.prod(transition[i, j] for i, j in itertools.pairwise(path))
        before = prior * math.prod(
            emission[s, o] for s, o in zip(path[:-1], observations[:-1], strict=True)
        )
        predicted[path[-1]] += before
        filtered[path[-1]] += before * emission[path[-1], observations[-1]]
    return filtered / filtered.sum(), predicted / predicted.sum()


def enumerate_words(initial, matrices, tokens):
    """Beliefs about the state after `tokens` and about the next token, over all state paths."""
    belief, following = np.zeros(len(initial)), np.zeros(len(matrices))
    for path in itertools.product(range(len(initial)), repeat=len(tokens) + 1):
        moves = zip(tokens, itertools.pairwise(path), strict=True)
        chance = initial[path[0]] * math.prod(matrices[x, i, j] for x, (i, j) in moves)
        belief[path[-1]] += chance
        for token, matrix in enumerate(matrices):
            following[token] += chance * matrix[path[-1]].sum()
    return belief / belief.sum(), following / following.sum()


def filter_in_logs(initial, transition, emission, observations):
    """[K, S] beliefs by log-sum-exp: the same filter with other arithmetic."""
    log_belief, beliefs = np.log(initial), []
    for t, symbol in enumerate(observations):
        if t:
            log_belief = np.logaddexp.reduce(log_belief[:, None] + np.log(transition), axis=0)
        log_belief = log_belief + np.log(emission[:, symbol])
        log_belief = log_belief - np.logaddexp.reduce(log_belief)
        beliefs.append(np.exp(log_belief))
    return np.array(beliefs)


def repair(row, units, least):
    """Round a row to units that sum up, one unit at a time and in turn."""
    cents = np.maximum(np.rint(row * units).astype(int), least)
    ascending = np.argsort(cents, kind="stable")
    while cents.sum() != units:
        adding = cents.sum() < units
        for index in ascending if adding else ascending[::-1]:
            if cents.sum() == units:
                break
            if adding:
                cents[index] += 1
            elif cents[index] > least:
                cents[index] -= 1
    return cents


def expected_entropies(tunnel):
    """[S] float64 expected entropy of the posterior of a bijection in bits, at each step.

    With D_t distinct keys among the first t: E[(V - D_t) / V · log2(V - D_t)] with
    replacement; without, D_t = t and every key is new: log2(V - t).
    """
    size = tunnel.alphabet
    if not tunnel.replacement:
        return torch.arange(size, size - tunnel.horizon, -1, dtype=torch.float64).log2()
    distinct = torch.arange(size + 1, dtype=torch.float64)
    new = (size - distinct) / size
    bits = new * (size - distinct).clamp(min=1).log2()
    chance = (distinct == 0).double()
    expected = []
    for _ in range(tunnel.horizon):
        expected.append((chance * bits).sum())
        chance = chance * (1 - new) + torch.nn.functional.pad((chance * new)[:-1], (1, 0))
    return torch.stack(expected)


def uniform_entropy_mae(posterior):
    """Mean of log2 C - H: the entropy error of the uniform predictor, in bits."""
    return (math.log2(posterior.shape[-1]) - entropy(posterior)).mean().item()
