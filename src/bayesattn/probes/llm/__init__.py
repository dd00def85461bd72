"""Probes of any causal language model of Hugging Face: found, loaded, taken apart and checked."""
