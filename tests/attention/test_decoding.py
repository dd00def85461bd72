"""One query at a time: the definition, at every length, and never from a table out of date."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from bayesattn import SSMax, attend
from bayesattn.attention import decoding, prepared
from bayesattn.priors import PRIORS, GeneralizedGaussian, Laplace, make_prior
from tests.attention.scenes import Scene, ggd, half, ssmax

SCOPES = [None, "content", "content+prior", "horizon"]
PLACES = {
    "causal": {},
    "window": {"window": 7},
    "window of one": {"window": 1},
    "padding": {"padding": torch.tensor([0, 6])},
    "only padding": {"padding": torch.tensor([33, 32])},
    "padding, window": {"padding": torch.tensor([30, 6]), "window": 5},
    "exempt": {"exempt": 3},
    "all exempt": {"exempt": 60},
    "exempt, window": {"exempt": 30, "window": 6},
    "exempt, padding, window": {"exempt": 3, "padding": torch.tensor([26, 2]), "window": 8},
}


def priors():
    for name in PRIORS:
        prior = make_prior(name, 4, **({"learned": True} if name == "laplace" else {}))
        with torch.no_grad():
            for x in prior.parameters():
                x += torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
        yield prior
    yield None


def moved(module, dtype):
    return None if module is None else copy.deepcopy(module).to(dtype)


@torch.no_grad()
def check(q, k, v, prior, temper, tolerance=2e-5, **place):
    """One query in the dtype it has against the definition in float64."""
    wide = [x.double() for x in (q, k, v)]
    exact = (moved(prior, torch.float64), moved(temper, torch.float64))
    wanted = attend(*wide, exact[0], ssmax=exact[1], kernel="dense", **place)
    found = attend(q, k, v, prior, ssmax=temper, **place)
    assert found.dtype == q.dtype and found.shape == q.shape
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=1)


@pytest.fixture
def kept_only(monkeypatch):
    """Steps that do not use what is prepared fail."""

    def refuse(kernel, *_):
        assert kernel == "dense", "this step went to a kernel"
        return kernel

    monkeypatch.setattr("bayesattn.attention.posterior._choose", refuse)


@pytest.mark.parametrize(
    ("scope", "place", "shape", "many"),
    half(SCOPES, PLACES, [(2, 4), (2, 2), (1, 4), (1, 1)], [1, 10_000]),
)
@torch.no_grad()
def test_one_query_is_the_definition(scope, place, shape, many, monkeypatch):
    batch, groups = shape
    monkeypatch.setattr(decoding, "_MANY", many)
    monkeypatch.setattr(decoding, "_MANY_SCALED", many)
    monkeypatch.setattr(prepared, "_SPARE", 5)
    scene = Scene(batch=batch, groups=groups, queries=1, keys=33)
    where = PLACES[place] | {}
    if "padding" in where:
        where["padding"] = where["padding"][:batch]
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        q, k, v, _ = scene.tensors(dtype)
        for prior in priors():
            temper = ssmax(4, scope, dtype)
            check(q, k, v, moved(prior, dtype), temper, tolerance, **where)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("kept_only")
def test_one_query_under_a_prior_that_is_the_same_everywhere(place, scope):
    q, k, v, _ = Scene(queries=1, keys=33).tensors(torch.float32)
    prior = GeneralizedGaussian(4, init="uniform")
    with torch.no_grad():
        prior.theta_alpha += torch.arange(4)  # heads differ, and exempt keys differ from the others
        check(q, k, v, prior, ssmax(4, scope, torch.float32), **PLACES[place])
        prior.theta_beta[3] = 0.3
        check(q, k, v, prior, ssmax(4, scope, torch.float32), **PLACES[place])


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("place", [{}, {"window": 9, "exempt": 4}, {"padding": torch.tensor([8])}])
@pytest.mark.usefixtures("kept_only")
@torch.no_grad()
def test_steps_of_a_growing_sequence(place, scope, monkeypatch):
    monkeypatch.setattr(prepared, "_SPARE", 3)  # so that tables grow often
    monkeypatch.setattr(decoding, "_MANY", 20)
    monkeypatch.setattr(decoding, "_MANY_SCALED", 20)
    q, k, v, _ = Scene(batch=1, groups=2, queries=40, keys=40).tensors(torch.float32)
    room = [torch.full((1, 2, 50, 8), torch.nan) for _ in "kv"]  # a static cache, unwritten
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, scope, torch.float32)
    whole = attend(
        *(x.double() for x in (q, k, v)),
        ggd(4, 0.5),
        ssmax=ssmax(4, scope),
        kernel="dense",
        **place,
    )
    for n in range(40):
        room[0][:, :, n], room[1][:, :, n] = k[:, :, n], v[:, :, n]
        found = attend(q[:, :, n : n + 1], *room, prior, ssmax=temper, offset=n, **place)
        assert (found - whole[:, :, n : n + 1]).abs().max() < 1e-5


def double(x):
    with torch.no_grad():
        x.mul_(2)


def by_data(x):
    x.data.mul_(2)


def by_memory(x):
    x.detach().numpy()[:] *= 2


def by_swap(x):
    x.data = x.data * 2


EDITS = [double, by_data, by_memory, by_swap]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", ["ggd", "laplace", "student", "bucketed"])
def test_no_edit_of_a_prior_is_missed(name, edit):
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior = make_prior(name, 4, **({"learned": True} if name == "laplace" else {}))
    generator = torch.Generator().manual_seed(8)
    for x in prior.parameters():
        nn.init.uniform_(x, 0.1, 0.6, generator)
    for temper in (None, ssmax(4, "horizon", torch.float32)):
        for x in prior.parameters():
            check(q, k, v, prior, temper)
            edit(x)
            check(q, k, v, prior, temper)


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("scope", SCOPES[1:])
def test_no_edit_of_temperatures_is_missed(scope, edit):
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, scope, torch.float32)
    check(q, k, v, prior, temper)
    edit(temper.scale)
    check(q, k, v, prior, temper)


def test_settings_count_too():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, -0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    bucketed = make_prior("bucketed", 4)
    nn.init.normal_(bucketed.theta_bucket, generator=torch.Generator().manual_seed(0))
    for change in (
        lambda: setattr(prior, "positive", True),
        lambda: setattr(temper, "horizon", 9),
        lambda: setattr(temper, "horizon", None),
        lambda: setattr(temper, "scope", "content"),
        lambda: setattr(bucketed, "max_distance", 19),
    ):
        check(q, k, v, prior, temper)
        check(q, k, v, bucketed, temper)
        change()
        check(q, k, v, prior, temper)
        check(q, k, v, bucketed, temper)


def test_training_loading_and_moving_between_steps():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    other = ggd(4, 1.3, torch.float32)
    check(q, k, v, prior, temper)
    optimizer = torch.optim.AdamW([*prior.parameters(), temper.scale], lr=0.3, fused=True)
    attend(q, k, v, prior, ssmax=temper).square().sum().backward()
    optimizer.step()
    check(q, k, v, prior, temper)
    prior.load_state_dict(other.state_dict())
    check(q, k, v, prior, temper)
    prior.load_state_dict(ggd(4, 0.9, torch.float32).state_dict(), assign=True)
    check(q, k, v, prior, temper)
    check(q.double(), k.double(), v.double(), prior.double(), temper, 1e-6)
    check(q, k, v, prior.float(), temper)
    prior.theta_beta = nn.Parameter(prior.theta_beta.detach() + 0.7)
    check(q, k, v, prior, temper)
    swapped = {"theta_beta": prior.theta_beta.detach() * 0.5}
    found = torch.func.functional_call(prior, swapped, (torch.arange(5),))
    assert not torch.equal(found, prior(torch.arange(5)))
    check(q, k, v, prior, temper)


@torch.no_grad()
def test_a_parameter_that_appears_between_steps_counts():
    class Shifted(Laplace):
        settings = ("learned",)
        extra: torch.Tensor | None

        def _log_prior(self, distance):
            line = super()._log_prior(distance)
            return line if self.extra is None else line * self.extra

    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior = Shifted(4)
    prior.register_parameter("extra", None)
    check(q, k, v, prior, None)
    prior.extra = nn.Parameter(torch.full((1,), 7.0))
    check(q, k, v, prior, None)
    del prior.extra
    prior.extra = None
    check(q, k, v, prior, None)


@torch.no_grad()
def test_a_table_is_made_once(monkeypatch):
    made = []
    table = GeneralizedGaussian.table
    monkeypatch.setattr(
        GeneralizedGaussian, "table", lambda self, n: made.append(n) or table(self, n)
    )
    q, k, v, _ = Scene(queries=100, keys=100).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    for n in range(20, 100):
        past = (k[:, :, : n + 1], v[:, :, : n + 1])
        attend(q[:, :, n : n + 1], *past, prior, ssmax=temper)
    assert len(made) == 2  # for the prior, and for what is in play at each length


@torch.no_grad()
def test_priors_of_others_are_asked_every_time():
    class Mine(Laplace):
        steep = 1.0

        def _log_prior(self, distance):
            return self.steep * super()._log_prior(distance)

    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior = Mine(4)
    check(q, k, v, prior, None)
    prior.steep = 5.0
    check(q, k, v, prior, None)
    prior = Laplace(4)
    prior.part = nn.Linear(1, 1)  # a table may depend on it: who knows
    check(q, k, v, prior, None)
    assert prior not in prepared._tables


def test_gradients_do_not_stop_at_what_is_kept():
    q, k, v, grad = Scene(queries=1).tensors()
    prior, temper = ggd(4, 0.5), ssmax(4, "content+prior")
    leaves = [prior.theta_beta, temper.scale]
    with torch.no_grad():
        attend(q, k, v, prior, ssmax=temper)
    found, wanted = (
        torch.autograd.grad(attend(q, k, v, prior, ssmax=temper, kernel=kernel), leaves, grad)
        for kernel in ("auto", "dense")
    )
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y)
    q.requires_grad_()
    attend(q, k, v, prior.requires_grad_(False)).backward(grad)
    assert q.grad.abs().max() > 0


def test_what_inference_mode_makes_is_of_use_outside():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    with torch.inference_mode():
        inside = attend(q, k, v, prior, ssmax=temper)
    with torch.no_grad():
        assert torch.equal(attend(q, k, v, prior, ssmax=temper), inside)
    attend(q.requires_grad_(), k, v, prior, ssmax=temper).sum().backward()


@torch.no_grad()
def test_a_table_goes_with_its_prior():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    attend(q, k, v, prior, ssmax=temper)
    tables = [prepared._tables[prior].reversed, prepared._temperatures[temper].factors]
    gone = [weakref.ref(x) for x in (prior, temper, *tables)]
    del prior, temper, tables
    gc.collect()
    assert [x() for x in gone] == [None] * 4


@torch.no_grad()
def test_a_nan_is_found_in_what_was_kept_before():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "content", torch.float32)
    attend(q, k, v, prior, ssmax=temper)
    prior.theta_beta[2] = torch.nan
    with pytest.raises(ValueError, match="theta_beta of head 2 of the ggd prior is nan"):
        attend(q, k, v, prior, ssmax=temper)
    prior.theta_beta[2], temper.scale[1] = 0.3, torch.inf
    with pytest.raises(ValueError, match="SSMax scale is NaN or infinite"):
        attend(q, k, v, prior, ssmax=temper)


@torch.no_grad()
def test_wrong_numbers_of_heads_are_refused_as_ever():
    q, k, v, _ = Scene(queries=1).tensors(torch.float32)
    with pytest.raises(ValueError, match="the prior has 3 heads but q has 4"):
        attend(q, k, v, ggd(3, 0.5, torch.float32))
    with pytest.raises(ValueError, match="SSMax has scales .* but q has 4 heads"):
        attend(q, k, v, ssmax=SSMax(2))


@torch.no_grad()
def test_threads_share_tables():
    q, k, v, _ = Scene(queries=64, keys=64).tensors(torch.float32)
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "horizon", torch.float32)
    whole = attend(q, k, v, prior, ssmax=temper, kernel="dense")
    wrong = []

    def steps(order):
        for n in order:
            past = (k[:, :, : n + 1], v[:, :, : n + 1])
            found = attend(q[:, :, n : n + 1], *past, prior, ssmax=temper)
            if (found - whole[:, :, n : n + 1]).abs().max() > 1e-5:
                wrong.append(n)

    orders = [list(range(64)), list(range(63, -1, -1)), [*range(0, 64, 3)], [*range(60, 0, -7)]]
    threads = [threading.Thread(target=steps, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.no_grad()
def test_bfloat16_steps_stay_close():
    q, k, v, _ = Scene(queries=1, groups=2).tensors(torch.bfloat16)
    check(q, k, v, ggd(4, 0.5, torch.float32), ssmax(4, "content+prior", torch.float32), 0.03)
