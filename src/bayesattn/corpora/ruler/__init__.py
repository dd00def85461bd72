"""RULER (Hsieh et al. 2024, arXiv 2404.06654) without a network: thirteen kinds of long prompts.

    material (words, sentences, names) -> a Draft of any length -> a prompt of a given length

Kinds, templates and limits are RULER's. Two things replace RULER's downloads: running text comes
from a corpus instead of essays, and questions are about made-up facts (`qa_facts`, `qa_hops`)
instead of SQuAD and HotpotQA. Scores of these two kinds are not comparable with published ones.
"""

from bayesattn.corpora.ruler.draft import Draft, Problem, TooShort, fit
from bayesattn.corpora.ruler.kinds import KINDS, make_problem
from bayesattn.corpora.ruler.material import Material

__all__ = ["KINDS", "Draft", "Material", "Problem", "TooShort", "fit", "make_problem"]
