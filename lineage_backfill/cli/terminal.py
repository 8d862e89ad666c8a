"""The two streams: data on stdout, talk on stderr; nothing from outside reaches them unescaped."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: What could move the cursor, hide text or turn it round; and halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def safe(text: object) -> str:
    r"""Return the text with control characters and invisible ones spelled out.

    >>> safe("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def out() -> Console:
    """Return the console for results."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console for everything that is not a result."""
    return _console(sys.stderr)


def is_interactive() -> bool:
    """Whether a person can be asked: they see the question and can type the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(text: str, *, style: str = "") -> None:
    """Print one sentence on stderr."""
    err().print(safe(text), style=style, soft_wrap=True)


def plain(shown: RenderableType, *, width: int = 120) -> str:
    """Return what would be shown as text for a file, without colours or trailing spaces."""
    file = io.StringIO()
    _console(file, width=width).print(shown)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _console(file: TextIO, width: int | None = None) -> Console:
    from rich.console import Console

    # Text is never markup here: names come from lineage, and may hold [brackets].
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)
