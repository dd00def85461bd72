"""Beyond which length SSMax counts only the keys that a head's prior leaves in play."""

from bayesattn.attention import SSMax
from bayesattn.evals.lengths import one_length
from bayesattn.models.open import LanguageModel


def set_horizon(language_model: LanguageModel, horizon: str) -> None:
    """Change a model that was trained; up to the horizon it stays what it is.

    Args:
        language_model: one of ours, with SSMax.
        horizon: such as "1x" of the training length, or a number of tokens.
    """
    length = one_length(horizon, language_model.length)
    modules = [part for part in language_model.model.modules() if isinstance(part, SSMax)]
    if not modules:
        raise ValueError(f"{language_model.name} has no SSMax, so it has no horizon to set")
    language_model.model.config.ssmax_horizon = length
    for module in modules:
        module.horizon = length
