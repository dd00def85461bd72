from importlib import import_module

import pytest

from benchmarks.__main__ import BENCHMARKS, main


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_can_be_asked_for_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"usage: benchmarks {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["speed"]])
def test_an_unknown_benchmark_gets_the_list(words, capsys):
    assert main(words) == 2
    assert "python -m benchmarks {attention,tunnels" in capsys.readouterr().err


def test_mistakes_are_one_sentence(capsys):
    assert main(["tunnels", "--batch", "0"]) == 2
    assert capsys.readouterr().err == "benchmarks: --batch counts sequences: it must be positive.\n"


def test_every_benchmark_is_found():
    for place in BENCHMARKS.values():
        module, name = place.split(":")
        assert hasattr(import_module(f"benchmarks.{module}"), name)
