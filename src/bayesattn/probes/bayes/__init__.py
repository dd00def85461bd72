"""Is a model Bayesian, and where does its belief live?"""
