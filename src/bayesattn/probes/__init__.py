"""Probes: what we measure inside a trained network, each number beside its null."""
