"""What strangers give, by accident or not; and whether what came of it is a sentence."""

import traceback

import bayesattn

TEXTS = (
    *("", " ", "-1", "0", "1e999", "nan", "inf", "9" * 30, "9" * 5000, "1" + "0" * 30 + "x"),
    *(
        "0x",
        "-0.5x",
        "x",
        "1x,",
        ",",
        "∞",
        "0x10",
        "１２",
        "\n",
        "a\x00b",
        "a" * 300,
        "💥",
        "\ud800",
    ),
    *("{", "[[[[", "[" * 3000, '{"a": 1}', "null", "true", "../../etc/passwd", "/etc/shadow", "~"),
    *("zoo:", "zoo:../x", "hf:", "zoo:passkey", "'; rm -rf x", "<script>alert(1)</script>", "%s"),
    *("--help=x", "-", "--", "1-", "3-1", "key=value", "=", "mu=nan", "init=[1,2]", "none", "all"),
)
VALUES = (
    *(None, True, False, -1, 0, 1, 2, 7, 2**31, 2**63, 10**30, 10**5000, 0.5, -0.5, 1e308),
    *(float("nan"), float("inf"), b"bytes", b"", "", "x", "1x", "9" * 30, "💥", (), [], [1], [[1]]),
    *({}, {"a": 1}, {1: 2}, {None: None}, {b"x": []}, object(), type, print, 1 + 2j, range(3)),
    *({"init": "mixed"}, {"init": []}, {"mu": float("nan")}, [float("nan")], ["x"], slice(1)),
)
SOURCE = bayesattn.__path__[0]


def is_sentence(error):
    """Whether an error was meant: raised by a `raise` of ours, or by a checker, with words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = last.filename.startswith(SOURCE) and (last.line or "").startswith("raise")
    checker = type(error).__name__.startswith("StrictDataclass")
    # a dataclass or function names the argument that it does not have, or needs
    argument = isinstance(error, TypeError) and "argument" in str(error)
    return (ours or checker or argument) and 10 < len(str(error)) < 2000
