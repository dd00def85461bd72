import torch

from bayesattn.dynamics.routing import DEAD, Routing


def test_the_published_vector():
    """One query with u = 1 and values b: their compatibility is b itself."""
    alpha = torch.tensor([[0.2, 0.5, 0.3]]).double()
    values = torch.tensor([[1.0], [-1.0], [0.5]]).double()
    routing = Routing(alpha, values, torch.ones(1, 1).double())
    torch.testing.assert_close(routing.compatibility, values.mT)
    torch.testing.assert_close(routing.row_mean, torch.tensor([-0.15]).double())
    expected = torch.tensor([[0.23, -0.425, 0.195]]).double()
    torch.testing.assert_close(routing.score_gradient, expected)
    torch.testing.assert_close(routing.advantage, torch.tensor([[-1.15, 0.85, -0.65]]).double())


def draw(generator, *leading):
    scores = torch.randn(*leading, 7, 9, generator=generator, dtype=torch.float64)
    values = torch.randn(*leading, 9, 4, generator=generator, dtype=torch.float64)
    upstream = torch.randn(*leading, 7, 4, generator=generator, dtype=torch.float64)
    return Routing(scores.softmax(-1), values, upstream)


def test_every_quantity_by_loops(generator):
    routing = draw(generator)
    alpha, v, u = routing.alpha, routing.values, routing.upstream
    for i in range(7):
        mean = sum(alpha[i, j] * (u[i] @ v[j]) for j in range(9))
        torch.testing.assert_close(routing.row_mean[i], mean)
        for j in range(9):
            b = u[i] @ v[j]
            torch.testing.assert_close(routing.compatibility[i, j], b)
            torch.testing.assert_close(routing.advantage[i, j], mean - b)
            torch.testing.assert_close(routing.score_gradient[i, j], alpha[i, j] * (b - mean))
    for j in range(9):
        torch.testing.assert_close(
            routing.weighted_error[j], sum(alpha[i, j] * u[i] for i in range(7))
        )
        torch.testing.assert_close(routing.usage[j], sum(alpha[i, j] for i in range(7)))


def test_rows_of_the_score_gradient_sum_to_zero(generator):
    gradient = draw(generator, 2, 3).score_gradient
    assert gradient.sum(-1).abs().max() < 1e-14
    assert gradient.abs().max() > 0.1


def test_a_raised_score_with_positive_advantage_lowers_what_is_paid(generator):
    """With u held, what a query pays is u_i·g_i."""
    routing = draw(generator)
    before = (routing.upstream * routing.context).sum(-1)
    for key in range(9):
        raised = routing.alpha.log()
        raised[:, key] += 1e-6
        after = (routing.upstream * (raised.softmax(-1) @ routing.values)).sum(-1)
        assert torch.equal(after < before, routing.advantage[:, key] > 0)


def test_unseen_keys_have_no_advantage(generator):
    routing = draw(generator)
    visible = torch.rand(7, 9, generator=generator) < 0.5
    visible[:, 0] = True
    alpha = routing.alpha.masked_fill(~visible, 0.0)
    masked = Routing(alpha, routing.values, routing.upstream, visible)
    assert (masked.advantage[~visible] == 0).all()
    assert (masked.advantage[visible] != 0).all()
    assert (masked.score_gradient[~visible] == 0).all()


def test_dead_values_are_seen_and_not_used():
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    visible[:, 1] = False  # nobody sees key 1
    alpha = torch.zeros(4, 4)
    alpha[:, 0] = 1.0
    alpha[3] = torch.tensor([1 - 0.0026, 0.0, 0.0, 0.0026])
    values = torch.zeros(4, 2)
    routing = Routing(alpha, values, values, visible)
    # uniform attention would use key 2 for 1/2 + 1/3 and key 3 for 1/3
    assert routing.dead.tolist() == [False, False, True, True]
    alpha[3, 3] = DEAD / 3 * 1.01
    assert Routing(alpha, values, values, visible).dead.tolist() == [False, False, True, False]


def test_dead_values_where_all_see_all():
    alpha = torch.tensor([[0.995, 0.005, 0.0], [0.98, 0.01, 0.01]])
    # two queries would use each of three values for 2/3: a hundredth of it is 0.0067
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, False]
    alpha[1, 2] = 0.008
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, False]
    alpha[1, 2] = 0.006
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, True]
