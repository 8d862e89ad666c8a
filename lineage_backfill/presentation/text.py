"""Text that is safe to show."""

from __future__ import annotations

import re

from lineage_backfill.redaction import redacted

#: What could move the cursor, hide text or turn it round; and halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def safe(text: object) -> str:
    r"""Return the text without secrets, control characters and invisible ones spelled out.

    >>> safe("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _UNSAFE.sub(
        lambda found: found[0].encode("unicode_escape").decode(), redacted(str(text))
    )


def counted(number: int, what: str) -> str:
    """Return the number and the word for it.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
