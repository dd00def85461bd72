import pytest

from bayesattn.training import machine
from bayesattn.training.recipes import (
    LANGUAGE_RECIPES,
    PAPER_SIZES,
    code,
    paper,
    published,
    small,
    tiny,
)


@pytest.mark.parametrize("name", LANGUAGE_RECIPES)
def test_every_recipe_is_a_model_and_a_training(name):
    language, training = LANGUAGE_RECIPES[name]()
    assert language.model_config().max_position_embeddings == language.length
    assert training.steps >= 100


def test_small_is_tiny_for_longer():
    (language, training), (same, longer) = tiny(), small()
    assert language == same and training.steps < longer.steps
    assert (language.length, language.global_layers, language.ssmax_horizon) == (128, "last", "1x")


def test_published_is_the_authors_setting_of_the_same_model():
    language, training = published()
    config, own = language.model_config(), tiny()[0].model_config()
    assert (config.global_layers, config.ssmax_horizon, config.prior_options) == ("all", None, {})
    assert config.ssmax_scope == "content+prior" and training.prior_lr is None
    assert config.hidden_size == own.hidden_size and config.prior == own.prior


def test_the_recipe_of_text_hides_nothing_and_reads_nothing_twice():
    language, training = code("fp32")
    assert language.needle_share == 0 and language.tokenizer == "train:4096"
    read = training.steps * training.batch_size * language.length
    assert 0.9 * language.corpus_tokens < read <= language.corpus_tokens
    assert language.model_config().windows() == [256] * 5 + [None]
    parameters = sum(p.numel() for p in language.build(Sizes(), 0).parameters())
    assert 4e6 < parameters < 1e7


class Sizes:
    """What a model asks of a tokenizer."""

    bos_token_id, eos_token_id, pad_token_id = 0, 1, 2

    def __len__(self):
        return 4096


@pytest.mark.parametrize("units", [True, False])
def test_precision_is_what_the_machine_is_quick_in(monkeypatch, units):
    monkeypatch.setattr(machine, "has_bf16", lambda: units)
    assert code()[1].precision == ("bf16" if units else "fp32")
    assert code("bf16")[1].precision == "bf16"


@pytest.mark.parametrize("size", PAPER_SIZES)
def test_the_authors_training(size):
    language, training = paper(size)
    assert language.size == size and language.needle_share == 0
    assert training.batch_size * language.length == 589_824
    assert language.prior_options == {} and language.prior == "ggd" and language.ssmax
    for processes in (1, 2, 4):
        assert training.batch_size % (processes * training.accumulate) == 0
    assert training.rate(0) == 1.0
    assert training.rate(training.steps - 1) == pytest.approx(0.1, abs=1e-6)


def test_other_sizes_are_not_the_authors():
    with pytest.raises(ValueError, match="The authors' sizes are l6, l8, .* not 'tiny'"):
        paper("tiny")
