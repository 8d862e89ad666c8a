"""Text that is safe to show."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

from lineage_backfill.redaction import redacted

#: Characters that move the cursor, hide or reverse text; and halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)

#: The cell of an unknown value.
UNKNOWN = "\u2013"

#: Formats an instant for display.
Moment = Callable[[datetime | str | None], str]


def safe(text: object) -> str:
    r"""Return the text without secrets; control and invisible characters are escaped.

    >>> safe("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _UNSAFE.sub(
        lambda found: found[0].encode("unicode_escape").decode(), redacted(str(text))
    )


def counted(number: int, what: str) -> str:
    """Return the number with its noun.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def shortened(text: str, width: int) -> str:
    """Return the text in at most `width` columns; a longer one ends with an ellipsis.

    >>> shortened("reads orders", 8), shortened("orders", 8)
    ('reads o…', 'orders')
    """
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def to_the_second(at: datetime | str | None, zone: tzinfo | None = UTC) -> str:
    """Return an instant to the second with its zone; None is the local zone.

    >>> to_the_second("2024-03-10T22:00:00Z")
    '2024-03-10 22:00:00 UTC'
    """
    if at is None:
        return UNKNOWN
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
