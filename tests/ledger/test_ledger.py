import errno
import json
import math
import os
from dataclasses import replace

import pytest

from bayesattn.claims import Tier, UserError
from bayesattn.files import parse
from bayesattn.ledger.ledger import SCHEMA, Ledger, add_record, set_aside
from tests.ledger.toy import crash, run_study, toy


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report" / "ledger.json"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return [
        run_study(toy("good"), Tier.QUICK, folder),
        run_study(toy("alone"), Tier.FULL, folder),
        run_study(toy("bad", measure=crash), Tier.QUICK, folder),
    ]


def test_what_is_saved_is_what_is_loaded(path, records):
    for record in records:
        add_record(path, record)
    assert Ledger.load(path).records == {record.claim.id: record for record in records}


def test_the_file_says_what_a_reader_needs_without_us(path, records):
    add_record(path, records[1])
    data = parse(path.read_text())
    assert data["schema"] == SCHEMA
    record = data["records"]["alone"]
    assert record["tier"] == "full" and record["claim"]["statements"][0]["scale"] == "one toy"
    row = record["rows"]["effect"]
    assert row["verdict"] == "supported" and row["seeds"] == [0, 1, 2, 3] and row["left_out"] == []
    assert len(row["interval"]) == 2 and 0.99 < row["level"] < 1 and row["p"] <= 0.05
    assert set(record["environment"]) == {"bayesattn", "python", "torch", "platform", "cpus"}


def test_a_new_record_replaces_its_own_claim_only(path, records):
    for record in (records[0], records[2], records[1]):
        add_record(path, record)
    again = replace(records[0], seconds=99.0)
    add_record(path, again)
    loaded = Ledger.load(path).records
    assert loaded["good"] == again
    assert loaded["alone"] == records[1] and loaded["bad"] == records[2]


def test_a_crash_while_writing_leaves_the_old_ledger(path, records, monkeypatch):
    add_record(path, records[0])
    before = path.read_bytes()

    def full_disk(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        add_record(path, records[1])
    assert path.read_bytes() == before


def test_what_is_not_json_is_never_written(path, records):
    add_record(path, records[0])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        add_record(path, replace(records[1], seconds=math.nan))
    assert path.read_bytes() == before


def test_saving_leaves_no_other_file_and_ordinary_permissions(path, records):
    add_record(path, records[0])
    assert os.listdir(path.parent) == ["ledger.json"]
    (path.parent / "plain").touch()
    assert path.stat().st_mode == (path.parent / "plain").stat().st_mode


def test_a_missing_ledger_says_how_to_make_one(path):
    with pytest.raises(UserError, match="no ledger at .*: `bayesattn claims run` writes one"):
        Ledger.load(path)


BROKEN = {
    "cut off": '{"schema": 2, "records": {"a": ',
    "not a ledger": "[]",
    "empty": "",
    "no records": json.dumps({"schema": SCHEMA}),
    "other records": json.dumps({"schema": SCHEMA, "records": {"a": {"verdict": None}}}),
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_ledger_that_cannot_be_read_is_set_aside_not_destroyed(path, records, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        Ledger.load(path)
    assert path.exists()
    assert "set aside as ledger.aside-1.json" in set_aside(path)
    assert (path.parent / "ledger.aside-1.json").read_bytes() == content
    add_record(path, records[0])
    assert list(Ledger.load(path).records) == ["good"]


def test_a_ledger_of_another_version_is_set_aside_beside_earlier_ones(path):
    path.parent.mkdir()
    for number in (1, 2):
        path.write_text(json.dumps({"schema": 99 + number, "records": {}}))
        sentence = set_aside(path)
        assert f"has schema {99 + number}; this version reads {SCHEMA}" in sentence
        assert (path.parent / f"ledger.aside-{number}.json").exists()
    assert not path.exists()


def test_a_ledger_of_the_first_edition_is_set_aside_and_named(path):
    path.parent.mkdir()
    path.write_text(json.dumps({"schema": 1, "records": {"bam-size": {"verdict": {}}}}))
    with pytest.raises(UserError, match=r"of the first edition.*`bayesattn claims run` sets it"):
        Ledger.load(path)
    measured = path.parent / "measured"
    measured.mkdir()
    (measured / "bam-size-full-0.json").write_text("{}")
    assert set_aside(path) == (
        f"The ledger {path} is of the first edition, whose rules gave other verdicts: it was set "
        "aside as ledger.aside-1.json and measured.aside-1, and a new one begun."
    )
    assert not path.exists() and not measured.exists()
    assert (path.parent / "measured.aside-1" / "bam-size-full-0.json").exists()


def test_a_good_or_missing_ledger_is_left_alone(path, records):
    assert set_aside(path) is None
    add_record(path, records[0])
    assert set_aside(path) is None
    assert list(Ledger.load(path).records) == ["good"]
