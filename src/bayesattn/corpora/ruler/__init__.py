"""RULER (Hsieh et al. 2024, arXiv 2404.06654) without a network: thirteen kinds of long prompts.

    material (words, sentences, names) -> a Draft whose filler is open -> a prompt of a given length

Kinds, templates and limits are RULER's. What it downloads is made here instead: running text is a
corpus of ours instead of essays, and questions are asked about made-up facts (`qa_facts`,
`qa_hops`) instead of SQuAD and HotpotQA, so scores of those two kinds are not comparable with
published ones.
"""

from bayesattn.corpora.ruler.draft import Draft, Problem, TooShort, fit
from bayesattn.corpora.ruler.kinds import KINDS, make_problem
from bayesattn.corpora.ruler.material import Material

__all__ = ["KINDS", "Draft", "Material", "Problem", "TooShort", "fit", "make_problem"]
