"""A file is written whole or not at all, and nothing but a file is ever replaced."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lineage_backfill.errors import BackfillError, UsageError
from lineage_backfill.files import whole_file
from lineage_backfill.show import documents
from lineage_backfill.show.documents import load, save
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.records import read_records, write_records
from lineage_backfill.sources.snapshot import SnapshotSource
from lineage_backfill.workspace import configuration


def test_what_is_cut_short_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def half() -> None:
        with whole_file(file) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert file.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def write(path: Path) -> None:
    with whole_file(path) as stream:
        stream.write(b"{}")


#: All that writes what a user names.
WRITERS = [write, lambda path: save({}, path), lambda path: write_records(path, [1])]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_stays_and_what_it_names_is_replaced(
    writer: Callable[[Path], None], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "file", tmp_path / "link"
    file.write_bytes(b"old")
    link.symlink_to("folder/file")
    writer(link)
    assert link.readlink() == Path("folder/file")
    assert file.read_bytes() != b"old"
    file.unlink()
    writer(link)  # it names what is not there
    assert link.is_symlink()
    assert file.is_file()


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_file_is_written_to_and_stays(
    writer: Callable[[Path], None], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = threading.Thread(target=writer, args=(pipe,))
    writing.start()
    writing.join()
    there = os.read(opened, 1000)
    os.close(opened)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert there
    file = tmp_path / "file"
    file.write_bytes(there)
    assert list(read_records(file)) == [1] if there[:2] == b"\x1f\x8b" else load(file) == {}


def test_only_where_nothing_is(tmp_path: Path) -> None:
    with whole_file(tmp_path / "file", replace=False) as stream:
        stream.write(b"first")
    with (
        pytest.raises(FileExistsError),
        whole_file(tmp_path / "file", replace=False) as stream,
    ):
        stream.write(b"second")
    assert (tmp_path / "file").read_bytes() == b"first"


PLAN = {"schema_version": 1, "kind": "plan", "id": "p-1", "jobs": []}


def test_two_threads_write_one_file_and_the_last_one_stands(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    with whole_file(file) as stream:
        stream.write(b"first to begin")
        other = threading.Thread(target=write_whole, args=(file, b"between"))
        other.start()
        other.join()
        assert file.read_bytes() == b"between"
    assert file.read_bytes() == b"first to begin"
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def write_whole(path: Path, content: bytes) -> None:
    with whole_file(path) as stream:
        stream.write(content)


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.touch()
    documents.save(PLAN, file)
    assert documents.load(file) == PLAN


def _endless(path: Path, kind: str) -> Path:
    """Make what is neither a file nor a folder, or leads nowhere."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(path.parent):
            one.bind(path.name)
    else:
        names = {"loop": str(path), "device": "/dev/zero", "dangling": "nowhere/at/all"}
        path.symlink_to(names[kind])
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "dangling"])
def test_what_nothing_can_be_written_to_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = _endless(tmp_path / "out.json", kind)
    with pytest.raises(UsageError, match="cannot be written"):
        save({}, path)
    assert not path.is_file()


READERS: list[Callable[[Path], object]] = [
    load,
    lambda path: list(read_records(path)),
    configuration.read_file,
    lambda path: SnapshotSource(path).read(),
    lambda path: EventSource([path]).read(),
    lambda path: EventSource([path.parent]).read(),
    lambda path: EventSource([path.parent / "*.json"]).read(),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "device"])
def test_what_may_have_no_end_is_refused_and_not_read(
    tmp_path: Path, kind: str, reader: Callable[[Path], object]
) -> None:
    path = _endless(tmp_path / "in.json", kind)
    with pytest.raises((OSError, BackfillError), match=r"device|symbolic links"):
        reader(path)


def test_a_pipe_that_the_shell_has_opened_is_read(tmp_path: Path) -> None:
    end, writes = os.pipe()
    os.write(writes, b"{}")
    os.close(writes)
    assert load(Path(f"/dev/fd/{end}")) == {}
    os.close(end)
