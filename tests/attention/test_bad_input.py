"""Each mistake gets one sentence that says what is allowed."""

import math

import pytest
import torch

from bayesattn import SSMax, attend
from bayesattn.priors import GeneralizedGaussian
from tests.attention.scenes import Scene, ggd


def tensors():
    return Scene().tensors(torch.float32)[:3]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kernel": "fast"}, "choose one of auto, dense, strided, flex"),
        ({"prior": GeneralizedGaussian(3)}, "the prior has 3 heads but q has 4"),
        ({"prior": torch.zeros(4, 20)}, r"at least 21\], not \(4, 20\)"),
        ({"prior": torch.full((4, 21), -math.inf)}, "must be finite"),
        ({"ssmax": SSMax(3)}, "q has 4 heads"),
        ({"ssmax": torch.full((4,), math.nan)}, "NaN or infinite"),
        ({"offset": -1}, "the right offset"),
        ({"offset": 5}, "a static cache must be built for at least the full length"),
        ({"rows": range(1, 22)}, r"between 0 and 20, the last key"),
        ({"rows": range(-1, 20)}, r"between 0 and 20, the last key"),
        ({"rows": [0, 1]}, "2 rows for 21 queries"),
        ({"rows": [*range(20), 3]}, "in increasing order, each once"),
        ({"rows": [*range(20), 19]}, "in increasing order, each once"),
        ({"rows": torch.arange(21.0)}, r"integer indices \[queries\], not torch.float32"),
        ({"rows": torch.zeros(21, 1, dtype=torch.long)}, r"not torch.int64 \(21, 1\)"),
        ({"rows": range(21), "offset": 0}, "leave offset out"),
        ({"window": 0}, "at least 1, not 0"),
        ({"exempt": -1}, "at least 0, not -1"),
        ({"documents": torch.zeros(2, 20, dtype=torch.long)}, r"\[2, 21\]"),
        ({"documents": torch.zeros(2, 21)}, "integer ids"),
        ({"padding": torch.ones(3, dtype=torch.long)}, r"shape \[2\]"),
        ({"padding": torch.tensor([0, -1])}, "cannot be negative"),
    ],
)
def test_values(change, message):
    with pytest.raises(ValueError, match=message):
        attend(*tensors(), **change)


@pytest.mark.parametrize("change", [{"prior": "ggd"}, {"ssmax": 1.0}])
def test_types(change):
    with pytest.raises(TypeError, match="must be"):
        attend(*tensors(), **change)


def test_nan_parameter_names_the_head():
    prior = ggd(4, 1.0, torch.float32)
    with torch.no_grad():
        prior.theta_beta[2] = math.nan
    with pytest.raises(ValueError, match="theta_beta of head 2"):
        attend(*tensors(), prior)


def test_shapes():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="batch, heads, length, width"):
        attend(q[0], k, v)
    with pytest.raises(ValueError, match="same shape"):
        attend(q, k, v[:, :, 1:])
    with pytest.raises(ValueError, match="4 query heads cannot share 3"):
        attend(q, k[:, :3], v[:, :3])
    with pytest.raises(ValueError, match="head width"):
        attend(q[..., 1:], k, v)
    with pytest.raises(ValueError, match="must not be empty"):
        attend(q[:, :, :0], k, v)


def test_dtypes():
    q, k, v = tensors()
    with pytest.raises(TypeError, match="use bfloat16 or float32"):
        attend(q.half(), k.half(), v.half())
    with pytest.raises(TypeError, match="share dtype"):
        attend(q, k.double(), v)
    with pytest.raises(TypeError, match="floating-point"):
        attend(q.long(), k.long(), v.long())


def test_flex_has_no_gradients_on_cpu():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="use 'strided' on CPU"):
        attend(q.requires_grad_(), k, v, kernel="flex")


def test_a_horizon_without_keys():
    with pytest.raises(ValueError, match="horizon must be 1 key or more, or None, not 0"):
        SSMax(4, horizon=0)


@pytest.mark.parametrize("scope", ["prior", "both"])
def test_unknown_scope(scope):
    with pytest.raises(ValueError, match=r"choose one of content\+prior, content"):
        SSMax(4, scope=scope)
