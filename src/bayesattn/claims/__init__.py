"""Claims: each is measured, judged by one rule, and enters the ledger."""

from bayesattn.claims.registry import all_studies, find_study, register
from bayesattn.errors import UserError
from bayesattn.ledger.study import Claim, Finding, Picture, Recipe, Study, Tier, Verdict

__all__ = [
    "Claim",
    "Finding",
    "Picture",
    "Recipe",
    "Study",
    "Tier",
    "UserError",
    "Verdict",
    "all_studies",
    "find_study",
    "register",
]
