"""Attention is a posterior: build it, test it against exact Bayes, look inside it."""
