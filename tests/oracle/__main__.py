"""`python -m tests.oracle HOW_MANY FIRST_SEED`: more random graphs than the suite takes."""

from __future__ import annotations

import sys

from tests.oracle.check import check

if not __debug__:
    sys.exit("error: under -O nothing would be checked")
count, first = int(sys.argv[1]), int(sys.argv[2])
for number, seed in enumerate(range(first, first + count), start=1):
    check(seed)
    if number % 500 == 0 or number == count:
        print(f"{number:,} graphs, seeds {first} to {seed}: plans equal the definition", flush=True)
