"""Counting: the most frequent words of a long list (`cwe`, `fwe`)."""

from itertools import islice
from random import Random
from string import ascii_lowercase

from bayesattn.corpora.ruler.draft import Draft
from bayesattn.corpora.ruler.material import Material

COMMON, REPEATS, RARE_REPEATS = 10, 30, 3
"""Number of common words, and how often each common word and each other word is in the list."""
TOP = 3
"""Number of coded words in the answer."""
LETTERS = 6
"""Number of letters of a coded word."""
DOTS = "..."
ZETA = 1.6449340668482264
"""Σ 1/r² over all ranks r."""


def common_words(material: Material, random: Random, depth: float) -> Draft:
    """Ten words are thirty times in a numbered list, the others three times."""
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
    """Coded words by Zipf's law: the frequency of the r-th is as 1/r²; the first is dots."""
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
        # each rank of the answer is more frequent than the next, also in short texts
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
