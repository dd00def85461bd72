import pytest
import torch

from bayesattn.probes.llm import sula
from bayesattn.probes.llm.sula_controls import CONTROLS, MAIN, condition
from bayesattn.probes.llm.sula_words import all_words

LABELS = ("dax", "lug", "mip", "wug")


@pytest.fixture
def evidence(generator):
    return sula.draw(all_words(), generator, count=300)


def made(evidence):
    generator = torch.Generator().manual_seed(9)
    return {
        name: condition(name, evidence, all_words(), LABELS, generator)
        for name in (MAIN, *CONTROLS)
    }


def test_remap_changes_the_labels_and_nothing_else(evidence):
    found = made(evidence)
    renamed = [
        text.replace(": dax", ": mip").replace(": lug", ": wug") for text in found[MAIN].texts
    ]
    assert found["remap"].texts == renamed and found["remap"].pair == ("mip", "wug")
    assert (found["remap"].posterior_bits == found[MAIN].posterior_bits).all()


def test_masked_words_leave_the_evidence(evidence):
    found = made(evidence)
    for text, masked in zip(found[MAIN].texts, found["mask_words"].texts, strict=True):
        *pairs, query = text.replace(". ", ", ").split(", ")
        labels = [pair.split(": ")[1] for pair in pairs]
        shown = ", ".join(f"word: {label}" for label in labels)
        assert masked == (f"{shown}. {query}" if shown else query)
    assert (found["mask_words"].posterior_bits == found[MAIN].posterior_bits).all()
    assert (found["mask_words"].predictive_bits == evidence.predictive_bits).all()


def test_masked_labels_leave_none(evidence):
    found = made(evidence)["mask_labels"]
    assert not any("dax" in text or "lug" in text for text in found.texts)
    assert (found.posterior_bits == 1).all() and (found.predictive_bits == 1).all()
    assert (found.unaware_bits == evidence.posterior_bits).all()


def test_coins_tell_nothing_but_look_like_evidence(evidence):
    found = made(evidence)["shuffled"]
    assert (found.posterior_bits == 1).all() and (found.predictive_bits == 1).all()
    for k in (1, 2, 4, 8):
        expected = sula.expectations(k).unaware_bits
        own = float(found.unaware_bits[evidence.shots == k].mean())
        assert own == pytest.approx(expected, abs=0.08), k
    # the words are those of the task, the labels are not
    words = [[pair.split(":")[0] for pair in text.split(", ")] for text in found.texts]
    other = [
        [pair.split(":")[0] for pair in text.split(", ")] for text in made(evidence)[MAIN].texts
    ]
    assert words[-1][:7] == other[-1][:7]
    assert found.texts != made(evidence)[MAIN].texts


def test_an_unknown_condition_is_refused(evidence):
    with pytest.raises(ValueError, match="no condition 'mask': choose one of main, remap"):
        condition("mask", evidence, all_words(), LABELS)
