"""Figures of tunnels, language models and probes."""
