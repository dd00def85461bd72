"""Gradient theory of attention: which way cross-entropy pushes scores and values, exactly."""
