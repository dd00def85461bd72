"""Claims: each is measured, judged by one rule, and enters the ledger."""

from bayesattn.claims.registry import all_studies, find_study, register
from bayesattn.errors import UserError
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.ledger.study import Picture, Recipe, Study, Tier
from bayesattn.verdicts import Count, Kind, Value

__all__ = [
    "Claim",
    "Count",
    "Kind",
    "Picture",
    "Recipe",
    "Statement",
    "Study",
    "Tier",
    "UserError",
    "Value",
    "all_studies",
    "find_study",
    "register",
]
