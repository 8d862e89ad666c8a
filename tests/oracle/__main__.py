"""`python -m tests.oracle HOW_MANY FIRST_SEED`: more random graphs and schedules than the suite."""

from __future__ import annotations

import sys

from tests.oracle.check import check
from tests.oracle.scheduled import check_scheduled

if not __debug__:
    sys.exit("error: under -O nothing would be checked")
count, first = int(sys.argv[1]), int(sys.argv[2])
for number, seed in enumerate(range(first, first + count), start=1):
    check(seed)
    check_scheduled(seed)
    if number % 500 == 0 or number == count:
        told = f"{number:,} graphs and schedules, seeds {first} to {seed}"
        print(f"{told}: all equal the definition", flush=True)
