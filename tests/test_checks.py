import pytest
import torch

from bayesattn.checks import at_least, one_of, readable, registered


def test_at_least_gives_the_integer_back():
    assert at_least("length", 3, 3) == 3


@pytest.mark.parametrize("value", [2, 3.0, True, "3", None])
def test_at_least_names_what_is_wrong(value):
    with pytest.raises(ValueError, match="length must be an integer of at least 3, not "):
        at_least("length", value, 3)


def test_one_of_names_the_choices():
    assert one_of("mode", "cot", ("cot", "direct")) == "cot"
    with pytest.raises(ValueError, match="mode must be one of cot, direct, not 'chain'"):
        one_of("mode", "chain", ("cot", "direct"))


def test_an_unknown_name_gets_the_nearest_one():
    colours = {"green": 1, "blue": 2}
    assert registered("colour", "blue", colours) == 2
    with pytest.raises(ValueError, match=r"'gren' \(did you mean 'green'\?\); choose"):
        registered("colour", "gren", colours)
    with pytest.raises(ValueError, match="unknown colour 'x'; choose one of green, blue"):
        registered("colour", "x", colours)


def test_values_on_other_devices_are_not_looked_at():
    assert readable(torch.zeros(1))
    assert not readable(torch.zeros(1, device="meta"))
