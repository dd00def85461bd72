"""Random damage to a file, of the kinds that disks, editors and half a copy do."""

import json
import math
import random

OTHERS = (None, True, "x", -1, 2.5, [], {}, "NaN", 10**30, [[1]])


def damage(path, chance: random.Random):
    """Damage a file in one way; says which."""
    before = path.read_bytes()
    kinds = [flip, truncate, empty, garble, duplicate, swap, cut, noise]
    if path.suffix in (".json", ".jsonl"):
        kinds += [wrong_type, not_a_number, another_number] * 2
    for _ in range(100):
        kind = chance.choice(kinds)
        path.write_bytes(kind(before, chance))
        if path.read_bytes() != before:
            return f"{kind.__name__} of {path.name}"
    raise AssertionError(f"nothing could be done to {path}")


def flip(data, chance):
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 3)) if data else 0):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def truncate(data, chance):
    return data[: chance.randrange(len(data))] if data else data


def empty(data, chance):
    return b""


def noise(data, chance):
    return data + chance.randbytes(chance.randint(1, 40))


def garble(data, chance):
    lines = data.split(b"\n")
    lines[chance.randrange(len(lines))] = chance.choice((b"{", b"\xff\xfe", b"nonsense", b"[1, 2"))
    return b"\n".join(lines)


def duplicate(data, chance):
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    return b"\n".join([*lines[:at], lines[at], *lines[at:]])


def swap(data, chance):
    lines = data.split(b"\n")
    one, other = (chance.randrange(len(lines)) for _ in range(2))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def cut(data, chance):
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    lines[at] = lines[at][: len(lines[at]) // 2]
    return b"\n".join(lines)


def wrong_type(data, chance):
    return _changed(data, chance, lambda value: chance.choice(OTHERS))


def not_a_number(data, chance):
    return _changed(data, chance, lambda value: chance.choice((math.nan, math.inf)), (int, float))


def another_number(data, chance):
    return _changed(data, chance, lambda value: value * 3 + 1, (int, float))


def _changed(data, chance, change, kinds=object):
    """JSON, or a line of it, with one value that is another one."""
    lines = data.split(b"\n")
    at = None
    try:
        whole = json.loads(data)
    except ValueError:
        at = chance.randrange(len(lines))
        try:
            whole = json.loads(lines[at])
        except ValueError:
            return data
    places = [place for place in _places(whole) if isinstance(place[0][place[1]], kinds)]
    if not places:
        return data
    inside, key = chance.choice(places)
    inside[key] = change(inside[key])
    text = json.dumps(whole, indent=1 if at is None else None).encode()
    return text if at is None else b"\n".join([*lines[:at], text, *lines[at + 1 :]])


def _places(value):
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
