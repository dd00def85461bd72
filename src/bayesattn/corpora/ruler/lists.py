"""Counting: which words of a long list come most often (`cwe`, `fwe`)."""

from itertools import islice
from random import Random
from string import ascii_lowercase

from bayesattn.corpora.ruler.draft import Draft
from bayesattn.corpora.ruler.material import Material

COMMON, REPEATS, RARE_REPEATS = 10, 30, 3
"""Common words, how often each stands in the list, and how often each other word does."""
TOP = 3
"""Coded words that are asked for."""
LETTERS = 6
"""Of a coded word."""
DOTS = "..."
ZETA = 1.6449340668482264
"""Σ 1/r² over all ranks r."""


def common_words(material: Material, random: Random, depth: float) -> Draft:
    """Ten words stand thirty times in a numbered list, the others three times."""
    words = material.different_words(random)
    common = list(islice(words, COMMON))
    rare: list[str] = []
    seed = random.getrandbits(64)

    def write(units: int) -> str:
        rare.extend(islice(words, max(0, units - len(rare))))
        listed = common * REPEATS + rare[:units] * RARE_REPEATS
        Random(seed).shuffle(listed)
        numbered = " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1))
        return (
            "Below is a numbered list of words. In these words, some appear more often than "
            f"others. Memorize the ones that appear most often.\n{numbered}\nQuestion: What are "
            f"the {COMMON} most common words in the above list? Answer: The top {COMMON} words "
            "that appear most often in the list are:"
        )

    return Draft(write, tuple(common))


def frequent_words(material: Material, random: Random, depth: float) -> Draft:
    """Coded words by Zipf's law: the r-th comes in proportion to 1/r², the first is dots."""
    codes: dict[str, None] = {}
    seed = random.getrandbits(64)
    letters = Random(random.getrandbits(64))

    def code(rank: int) -> str:
        while len(codes) < rank:
            codes["".join(letters.choices(ascii_lowercase, k=LETTERS))] = None
        return list(codes)[rank - 1] if rank == len(codes) else next(islice(codes, rank - 1, None))

    def write(units: int) -> str:
        listed = [DOTS] * max(TOP + 2, int(units / ZETA))
        rank = 2
        # every asked rank is more frequent than the next by one or more, however short the text
        while (times := max(int(units / ZETA / rank**2), TOP + 3 - rank)) > 0:
            listed += [code(rank - 1)] * times
            rank += 1
        Random(seed).shuffle(listed)
        return (
            "Read the following coded text and track the frequency of each coded word. Find the "
            f"three most frequently appeared coded words.\n{' '.join(listed)}\nQuestion: Do not "
            "provide any explanation. Please ignore the dots '....'. What are the three most "
            "frequently appeared words in the above coded text? Answer: According to the coded "
            "text above, the three most frequently appeared words are:"
        )

    return Draft(write, tuple(code(rank) for rank in range(1, TOP + 1)))
