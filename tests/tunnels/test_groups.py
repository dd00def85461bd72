"""Groups and the filter under them, against enumeration over where the point began."""

from fractions import Fraction

import pytest
import torch

from bayesattn.bits import entropy
from bayesattn.tunnels import GroupFilter
from bayesattn.tunnels.groups import make_group, most_probable, prefix_products

SCRATCH = ("none", "product", "argmax", "filler")


def enumerated(group, actions, readings, reliability):
    """Belief about the last point by following each x_0 on its own, in exact fractions."""
    points = group.points
    right = Fraction(reliability).limit_denominator(1000)
    wrong = (1 - right) / (points - 1)
    belief = [Fraction(0)] * points
    for start in range(points):
        at, chance = start, Fraction(1, points)
        for action, reading in zip(actions, readings, strict=True):
            at = int(group.action[action, at])
            chance *= right if reading == at else wrong
        belief[at] += chance
    return [p / sum(belief) for p in belief]


@pytest.mark.parametrize("name", ["S5", "Z5", "S3", "0 1 2 3; 1 0 3 2; 2 3 0 1; 3 2 1 0"])
def test_beliefs_by_enumeration(name, generator):
    tunnel = GroupFilter(name, 6, 0.7)
    batch = tunnel.sample(40, generator)
    actions, readings = batch.metadata["actions"].tolist(), batch.metadata["readings"].tolist()
    cases = 0
    for row in range(40):
        for step in range(6):
            seen = slice(0, step + 1)
            expected = enumerated(make_group(name), actions[row][seen], readings[row][seen], 0.7)
            found = batch.posterior[row, step].tolist()
            assert found == pytest.approx([float(p) for p in expected], abs=1e-12)
            cases += 1
    assert cases == 240  # 960 over the four groups


def test_tables_of_all_orders_of_five_points():
    group = make_group("S5")
    assert (group.order, group.points) == (120, 5)
    elements = [tuple(row) for row in group.action.tolist()]
    assert len(set(elements)) == 120
    for a, b in [(3, 77), (119, 1), (50, 50), (0, 8), (64, 0)]:
        after = tuple(elements[a][elements[b][j]] for j in range(5))
        assert elements[int(group.table[a, b])] == after
    assert (group.table[torch.arange(120), group.inverses] == group.identity).all()
    assert (group.table[group.inverses, torch.arange(120)] == group.identity).all()
    assert group.identity == 0
    assert not torch.equal(group.table, group.table.T)
    left, right = group.table[group.table], group.table[:, group.table]
    assert torch.equal(left, right)


def test_rotations_of_five_points():
    group = make_group("Z5")
    assert (group.order, group.points, group.identity) == (5, 5, 0)
    assert torch.equal(group.table, group.table.T)
    assert group.action[2].tolist() == [2, 3, 4, 0, 1]
    assert group.inverses.tolist() == [0, 4, 3, 2, 1]


@pytest.mark.parametrize("name", ["S2", "S4", "S5", "Z6", "0 1 2 3; 1 0 3 2; 2 3 0 1; 3 2 1 0"])
def test_generators_make_everything_and_none_is_spare(name):
    group = make_group(name)

    def made(elements):
        found = {group.identity}
        for _ in range(group.order):
            found |= {int(group.table[a, b]) for a in elements for b in found}
        return found

    assert len(made(group.generators)) == group.order
    for number, generator in enumerate(group.generators):
        assert generator not in made(group.generators[:number])


def test_identity_alone_gives_both_groups_the_same_entropies(generator):
    readings = torch.randint(5, (50, 8), generator=generator)
    still = torch.zeros(50, 8, dtype=torch.int64)
    one, other = (GroupFilter(name, 8).track(still, readings).beliefs for name in ("S5", "Z5"))
    assert torch.equal(entropy(one), entropy(other))
    assert torch.equal(one, other)


def test_perfect_readings_leave_no_doubt(generator):
    for name in ("S5", "Z5"):
        batch = GroupFilter(name, 5, 1.0).sample(30, generator)
        expected = torch.nn.functional.one_hot(batch.labels, 5).double()
        assert torch.equal(batch.posterior, expected)


@pytest.mark.parametrize("scratch", SCRATCH)
def test_the_layout(scratch, generator):
    tunnel = GroupFilter("S3", 4, 0.8, scratch)
    batch = tunnel.sample(60, generator)
    group, order, points = make_group("S3"), 6, 3
    first = order + points
    beliefs = GroupFilter("S3", 4, 0.8).track(*tunnel.read(batch.inputs)).beliefs
    for row in range(60):
        actions, readings, states = (
            batch.metadata[name][row].tolist() for name in ("actions", "readings", "states")
        )
        product, tokens, labels = group.identity, [], []
        for step, (action, reading, state) in enumerate(
            zip(actions, readings, states, strict=True)
        ):
            product = int(group.table[action, product])
            if step > 0:
                assert state == group.action[action, states[step - 1]]
            largest = first + int(most_probable(beliefs[row, step]))
            tokens += {
                "none": [action, order + reading],
                "product": [action, first + product, order + reading],
                "argmax": [action, order + reading, largest],
                "filler": [action, first, order + reading],
            }[scratch]
            labels += [product, state] if scratch == "product" else [state]
        assert batch.inputs[row].tolist() == tokens[: tunnel.positions]
        assert batch.labels[row].tolist() == labels
    spelled = tunnel.spell(torch.arange(tunnel.outcomes))
    for at in tunnel.written.tolist():
        assert at - 1 in tunnel.scored.tolist()
        assert set(batch.inputs[:, at].tolist()) <= set(spelled.tolist())
    assert len(tunnel.written) == {"none": 0, "product": 4, "argmax": 3, "filler": 0}[scratch]


def test_filler_is_as_long_as_the_product():
    lengths = {name: GroupFilter("S5", 7, scratch=name).positions for name in SCRATCH}
    assert lengths == {"none": 14, "product": 21, "argmax": 20, "filler": 21}


def test_generators_only(generator):
    tunnel = GroupFilter("S5", 40, actions="generators")
    batch = tunnel.sample(50, generator)
    assert set(batch.metadata["actions"].unique().tolist()) == set(tunnel.allowed.tolist())
    assert len(tunnel.allowed) == 5
    assert len(batch.metadata["products"].unique()) > 100


def test_readings_are_right_as_often_as_they_should(generator):
    batch = GroupFilter("Z5", 10, 0.6).sample(4000, generator)
    wrong = (batch.metadata["readings"] - batch.metadata["states"]) % 5
    shares = torch.bincount(wrong.flatten(), minlength=5) / wrong.numel()
    assert shares.tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1], abs=0.01)


def test_prefix_products_apply_the_first_action_first():
    group = make_group("S3")
    swap, turn = 2, 3  # (1 0 2) and (1 2 0)
    assert group.action[swap].tolist() == [1, 0, 2] and group.action[turn].tolist() == [1, 2, 0]
    (products,) = prefix_products(group, torch.tensor([[swap, turn]])).tolist()
    assert group.action[products[1]].tolist() == [2, 1, 0]  # 0 is swapped to 1, then turned to 2


def test_equal_beliefs_go_to_the_first():
    beliefs = torch.tensor([[0.1, 0.45, 0.45], [0.3, 0.3 + 1e-12, 0.4]], dtype=torch.float64)
    assert most_probable(beliefs).tolist() == [1, 2]
    assert most_probable(torch.tensor([0.3, 0.3 + 1e-12, 0.2], dtype=torch.float64)).tolist() == 0


@pytest.mark.parametrize(
    "name, message",
    [
        ("S9", "group S9 is too small or too large: choose S2 to S6 or Z2 to Z720"),
        ("D4", "group must be S5, Z5 or the like, or rows of a multiplication table"),
        ("0 1; 1", "as many columns as rows"),
        ("0 1; 1 2", "not a group: products must be elements, 0 to 1"),
        ("1 0; 1 0", "not a group: it has no identity element"),
        ("0 1 2; 1 1 1; 2 1 0", "not a group: an element has no inverse"),
        (
            "0 1 2 3 4; 1 0 3 4 2; 2 4 0 1 3; 3 2 4 0 1; 4 3 1 2 0",
            r"not a group: \(1·1\)·2 is not 1·\(1·2\)",
        ),
    ],
)
def test_what_is_not_a_group(name, message):
    with pytest.raises(ValueError, match=message):
        GroupFilter(name)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"reliability": 0.0}, "reliability must lie in 0 … 1"),
        ({"scratch": "some"}, "scratch must be one of none, product, argmax, filler, not 'some'"),
        ({"actions": "few"}, "actions must be one of all, generators, not 'few'"),
        ({"length": 0}, "length must be an integer of at least 1"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(fields, message):
    with pytest.raises(ValueError, match=message):
        GroupFilter(**fields)
