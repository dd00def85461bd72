"""Verdicts: one rule that judges all statements from the numbers of their seeds."""

from bayesattn.verdicts.family import WORDS, Kind, holm, next_look, word
from bayesattn.verdicts.judgement import Judgement, Outcome, judge, judge_identity
from bayesattn.verdicts.planning import chance_of_yes, seeds_needed
from bayesattn.verdicts.rule import ERROR, LEVELS, LOOKS, Limit, Rule, Transform
from bayesattn.verdicts.values import Count, Effect, Value

__all__ = [
    "ERROR",
    "LEVELS",
    "LOOKS",
    "WORDS",
    "Count",
    "Effect",
    "Judgement",
    "Kind",
    "Limit",
    "Outcome",
    "Rule",
    "Transform",
    "Value",
    "chance_of_yes",
    "holm",
    "judge",
    "judge_identity",
    "next_look",
    "seeds_needed",
    "word",
]
