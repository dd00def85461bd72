"""What predictors that infer nothing score: a model must be better than all of them."""

from torch import Tensor

from bayesattn.tunnels import trivial


def trivial_predictions(posterior: Tensor) -> dict[str, Tensor]:
    """Probabilities [N, S, C] by name: uniform, constant, and constant per sequence (instance).

    The constants are fitted on the very posteriors they are judged by, the strongest they can be.
    """
    return {
        "uniform": trivial.uniform_predictor(posterior),
        "constant": trivial.constant_predictor(posterior),
        "instance": trivial.instance_predictor(posterior),
    }


def entropy_baselines(posterior: Tensor) -> dict[str, float]:
    """mae_tok of the best constant entropy, over all sequences and for each of them, in bits."""
    return {
        "constant": trivial.constant_entropy_mae(posterior),
        "instance": trivial.instance_entropy_mae(posterior),
    }
