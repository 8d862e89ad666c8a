"""Runs Python files as `python FILE` does, several at once in threads of one process.

A file is the module `__main__` of its thread. While files of several threads run, the entry of
`sys.modules` shows each thread its own one: pickle, dataclasses and `typing.get_type_hints` look
up `__main__` there. The list `sys.argv` has to be shared: it names the file that began last, and
never has arguments.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from spark_runtime.job.threads import OfThreads

_NAME = "__main__"


@dataclass(eq=False, slots=True)
class _Main:
    """A main module, and its arguments: of the process, or of a file."""

    module: ModuleType
    arguments: list[str]


class _OfThread(ModuleType):
    """A module that each thread sees as its own main module."""

    def __getattribute__(self, name: str) -> Any:
        return getattr(_main().module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_main().module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_main().module, name)


#: The main module of the process itself, and that of each running file.
_process = _Main(sys.modules[_NAME], sys.argv)
_files: OfThreads[_Main] = OfThreads()
_changing = Lock()
_shown = _OfThread(_NAME)


def run_file(path: Path) -> None:
    """Run a file as the main module, without arguments; raises what the file raises."""
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec", dont_inherit=True)
    module = ModuleType(_NAME)
    vars(module).update(__file__=str(path), __cached__=None, __package__="")
    with _as_main(_Main(module, [str(path)])):
        exec(code, vars(module))  # noqa: S102 (the project's own code)


@contextmanager
def _as_main(own: _Main) -> Iterator[None]:
    with _changing:
        if not _files.all():
            _process.module = sys.modules[_NAME]
        _last().arguments = sys.argv  # a file may have replaced the list
        _files.hold(own)
        _show(own.arguments)
    try:
        yield
    finally:
        with _changing:
            is_last = _last() is own
            _files.drop(own)
            _show(_last().arguments if is_last else sys.argv)


def _last() -> _Main:
    """Return what became main last."""
    return [_process, *_files.all()][-1]


def _show(arguments: list[str]) -> None:
    """Show each thread its main module, and all of them these arguments."""
    newest = _files.newest() or [_process]
    sys.modules[_NAME] = newest[0].module if len(newest) == 1 else _shown
    sys.argv = arguments


def _main() -> _Main:
    """Return what is main in this thread; in one without a file, the only file there is."""
    found = _files.of_this_thread()[-1:] or _files.newest()
    return found[0] if len(found) == 1 else _process
