"""Claims: each is measured, judged by one rule, and enters the ledger."""

from bayesattn.claims.registry import all_studies, find_study, register
from bayesattn.errors import UserError
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.ledger.study import Finding, Picture, Recipe, Study, Tier, Verdict
from bayesattn.verdicts import Count, Kind, Value

__all__ = [
    "Claim",
    "Count",
    "Finding",
    "Kind",
    "Picture",
    "Recipe",
    "Statement",
    "Study",
    "Tier",
    "UserError",
    "Value",
    "Verdict",
    "all_studies",
    "find_study",
    "register",
]
