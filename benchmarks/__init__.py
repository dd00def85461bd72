"""Ratios against the real alternative, measured in one run."""
