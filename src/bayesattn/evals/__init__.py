"""Evaluations of trained models: predictions, retrieval, perplexity, priors."""
