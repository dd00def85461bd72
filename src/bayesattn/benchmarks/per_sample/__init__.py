"""The tunnels once more, one sequence at a time: natural loops, independent of the samplers.

Each class draws one sequence from a numpy generator, and finds the exact posterior of given inputs.
They are the oracles of the vectorised samplers in the tests, and what those are timed against.
"""

from bayesattn.benchmarks.per_sample.base import PerSample, Sample
from bayesattn.benchmarks.per_sample.bijection import PerSampleBijection
from bayesattn.benchmarks.per_sample.groups import PerSampleGroup
from bayesattn.benchmarks.per_sample.hmm import PerSampleHMM
from bayesattn.benchmarks.per_sample.hops import PerSampleHops
from bayesattn.benchmarks.per_sample.recall import PerSampleRecall
from bayesattn.benchmarks.per_sample.revision import PerSampleRevision
from bayesattn.benchmarks.per_sample.sticky import PerSampleSticky

__all__ = [
    "PER_SAMPLE",
    "PerSample",
    "PerSampleBijection",
    "PerSampleGroup",
    "PerSampleHMM",
    "PerSampleHops",
    "PerSampleRecall",
    "PerSampleRevision",
    "PerSampleSticky",
    "Sample",
]

PER_SAMPLE: dict[str, type[PerSample]] = {
    "bijection": PerSampleBijection,
    "hmm": PerSampleHMM,
    "recall": PerSampleRecall,
    "revision": PerSampleRevision,
    "sticky": PerSampleSticky,
    "hops": PerSampleHops,
    "group": PerSampleGroup,
}
"""The per-sample code of each tunnel, by the tunnel's name."""
