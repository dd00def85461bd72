"""What commands say while they work."""

import time

from bayesattn.console import show_rows, telling
from bayesattn.models.hugging_face import quiet


def test_work_that_takes_a_while_is_told_where_there_is_no_terminal(capsys):
    with telling(every=0.05) as tell:
        tell("reading")
        time.sleep(0.2)
        tell("quick")
        tell("measuring")
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" s  ")[2] for line in lines] == ["reading", "measuring"]


def test_what_silences_libraries_does_not_silence_it(capsys):
    with telling(every=0.05) as tell, quiet():
        tell("loading")
        time.sleep(0.2)
    assert capsys.readouterr().err.endswith("loading\n")


def test_quick_work_is_done_in_silence(capsys):
    with telling() as tell:
        tell("reading")
    assert capsys.readouterr() == ("", "")


def test_columns_in_a_pipe_are_as_wide_as_their_words(capsys):
    show_rows([{"name": "a", "words": "many " * 60}, {"name": "long", "words": "few"}])
    assert capsys.readouterr().out.splitlines() == [
        "name  words",
        ("a     " + "many " * 60).strip(),
        "long  few",
    ]
