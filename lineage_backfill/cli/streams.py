"""What is printed never decides what becomes of a backfill: streams that outlast their readers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from lineage_backfill.errors import BackfillError


class _Lasting:
    """A stream whose writes raise nothing, except BackfillError where it is not only talk."""

    def __init__(self, stream: TextIO, *, is_talk: bool) -> None:
        self._stream = stream
        self._is_talk = is_talk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        self._try(self._stream.write, text)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write texts, one after the other."""
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(self._stream.flush)

    def end(self) -> None:
        """Write what is buffered, or let it go nowhere: Python exits with 120 where it is left."""
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _try(self, call: Callable[..., object], *given: str) -> None:
        try:
            call(*given)
        except BrokenPipeError:
            self._drop()
        except OSError as error:
            if self._is_talk:
                return  # a full disk may have room again
            self._drop()
            raise BackfillError(
                f"the output cannot be written: {error.strerror}",
                hint="Free disk space, or redirect stdout.",
            ) from error

    def _drop(self) -> None:
        with suppress(OSError, ValueError):  # no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Drop data without a reader, and talk that cannot be written.

    A stream that is closed goes nowhere. Other errors of stdout are BackfillErrors.
    """
    given = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        out = _Lasting(given[0] or nowhere, is_talk=False)
        err = _Lasting(given[1] or nowhere, is_talk=True)
        sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = given
            out.end()
            err.end()
