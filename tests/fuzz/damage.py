"""Damaged JSON values and damaged bytes, by dice that a seed repeats."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

#: Values that are not what was meant, in some place or other.
JUNK: list[Any] = [
    None, True, 0, -1, 1e308, "", " ", "x", "\x00", "\ud800", "2024-13-01", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59", [], [[]], [None], {}, {"": {}}, {"namespace": "n"}, ["x"] * 3,
]  # fmt: skip
#: Bytes that files hold when something went wrong with them.
NOISE = [
    b"\x00", b"\x00" * 512, b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\xc3", b"\r", b"\n", b"\r\n",
    b"\n\n", b"\x1f\x8b", b"\x1a", b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\\ud800", b"NaN",
    b"-Infinity", b"1e999", b"9" * 5_000, b"[" * 2_000, b'{"a":' * 2_000, b" " * 2_000, b"hello\n",
    "\u2028".encode(), b"//",
]  # fmt: skip
ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-7")


def mutated(value: str, dice: random.Random) -> Any:
    """Return a JSON value with something in it removed, repeated, exchanged or replaced."""
    result = json.loads(value)
    places: list[Any] = []
    todo: list[Any] = [result]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list) and item:
            places.append(item)
            todo += item.values() if isinstance(item, dict) else item
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        place = dice.choice(places)
        if not place:
            continue
        key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
        match dice.randrange(4):
            case 0:
                place[key] = dice.choice(JUNK)
            case 1:
                del place[key]
            case 2:
                place[key] = json.loads(json.dumps(dice.choice(places)))  # its like, from elsewhere
            case 3 if isinstance(place, list):
                place.insert(key, place[key])
            case _:
                place[key] = str(place[key])
    return result


def written(events: list[str], dice: random.Random) -> bytes:
    """Return a file of these events in one of the forms that files have."""
    match dice.randrange(10):
        case 0 | 4:
            return f"[{','.join(events)}]".encode()
        case 1:
            return json.dumps([json.loads(event) for event in events], indent=1).encode()
        case 2 | 5:
            return f'{{"events":[{",".join(events)}],"totalCount":{len(events)}}}'.encode()
        case 3 | 6:
            return "\n".join(events).encode()
        case _:
            return "".join(f"{event}\n" for event in events).encode()


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return the bytes of a file, often packed, with some of them cut, changed or added."""
    packed = dice.random() < 0.3
    if packed and dice.random() < 0.5:
        data, packed = gzip.compress(data, 1), False
    match dice.randrange(8):
        case 0:
            data = data[: dice.randrange(len(data) + 1)]
        case 1:
            data = data[dice.randrange(len(data)) :]
        case 2:
            first, last = sorted(dice.randrange(len(data) + 1) for _ in "ab")
            data = data[:first] + data[last:]
        case 3:
            first, last = sorted(dice.randrange(len(data) + 1) for _ in "ab")
            data = data[:last] + data[first:]
        case 4:
            at = dice.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        case 5:
            data = data.decode("utf-8", "replace").encode(dice.choice(ENCODINGS))
        case _:
            for _ in range(dice.choice((1, 1, 2))):
                at = dice.choice((0, len(data), dice.randrange(len(data) + 1)))
                data = data[:at] + dice.choice(NOISE) + data[at:]
    return gzip.compress(data, 1) if packed else data
