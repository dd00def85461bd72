"""Gradient theory of attention: exact gradients of scores and values under cross-entropy."""
