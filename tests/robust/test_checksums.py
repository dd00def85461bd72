"""Every byte of what has a checksum counts."""

import errno
import json
import os
import signal

import pytest

from bayesattn import files

DATA = {"step": 3, "text": 'ünï"code\\', "deep": {"checksum": 1, "list": [0.1, -2e-9, None, True]}}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("data", [DATA, {}, {"a": 1}])
def test_no_bit_can_be_flipped(data, indent):
    text = files.with_checksum(json.dumps(data, indent=indent, ensure_ascii=False))
    assert files.parse(text) == data
    assert json.loads(text).keys() == {*data, "checksum"}  # for other programs it is JSON
    for place in range(len(text)):
        for bit in range(7):
            changed = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
            try:
                assert files.parse(changed) == data  # white space after the checksum
            except ValueError:
                continue


def test_what_was_written_before_there_were_checksums_is_read():
    assert files.parse(json.dumps(DATA)) == DATA
    assert files.parse('{"commit": "0123456789ab"}') == {"commit": "0123456789ab"}
    assert files.parse("[1, 2]") == [1, 2]


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[" * 100_000, "", "{"])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        files.parse(text)


def test_a_field_after_the_checksum_is_a_change():
    text = files.with_checksum('{"a": 1}')
    with pytest.raises(ValueError, match="changed after it was written"):
        files.parse(text[:-1] + ', "b": 2}')


def test_what_was_set_aside_before_is_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for text in ("first", "second"):
        path.write_text(text)
        files.aside(path)
    found = {own.name: own.read_text() for own in tmp_path.iterdir()}
    assert found == {"metrics.aside-1.jsonl": "first", "metrics.aside-2.jsonl": "second"}


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_killed_or_failed_write_leaves_what_was_there(tmp_path, moment, monkeypatch):
    path = tmp_path / "config.json"
    files.write_json(path, DATA, checked=True)
    owner = os if moment == "fsync" else type(path)

    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if not (pid := os.fork()):
        setattr(owner, moment, killed)
        files.write_json(path, {"step": 4} | DATA)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert files.read_json(path) == DATA
    assert len(list(tmp_path.iterdir())) == 2  # and what was begun, under another name
    files.clean(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(owner, moment, full)
        files.write_json(path, {"step": 4} | DATA)
    assert files.read_json(path) == DATA
    assert list(tmp_path.iterdir()) == [path]
