"""A table's lock is waited for with a limit, and the error names its holder."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest

from spark_runtime.errors import TableLockedError
from spark_runtime.tables import locks
from spark_runtime.tables.locks import LOCK_FILE, exclusively


def test_a_lock_that_is_never_released_ends_the_wait_and_names_its_holder(tmp_path: Path) -> None:
    start = time.monotonic()
    with (
        exclusively(tmp_path),
        pytest.raises(TableLockedError, match=rf"locked by process {os.getpid()} on .* since 2"),
        exclusively(tmp_path, limit=0.2),
    ):
        raise AssertionError("two hold it at once")
    assert 0.2 <= time.monotonic() - start < 5
    assert TableLockedError("").transient
    with exclusively(tmp_path, limit=0):
        pass


def test_who_is_waited_for_is_said_while_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "QUIET", 0.05)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusively(tmp_path):
            held.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    threading.Timer(0.3, done.set).start()
    with caplog.at_level(logging.WARNING), exclusively(tmp_path):
        holder.join(10)
    assert f"waiting for the lock of {tmp_path}: process {os.getpid()}" in caplog.text
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_where_files_cannot_be_locked_a_write_goes_on_without(tmp_path: Path) -> None:
    with exclusively(tmp_path / "missing"):
        pass
