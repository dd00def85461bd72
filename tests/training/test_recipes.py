import pytest

from bayesattn.training import LANGUAGE_RECIPES
from bayesattn.training.recipes import PAPER_SIZES, paper, published, small, tiny


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
