"""Events in an object store are read as files are: all of them, or an error."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lineage_backfill.cli.main import main
from lineage_backfill.errors import (
    EnvironmentMissingError,
    LineageError,
    ServiceUnreachableError,
)
from tests.unit.sources.test_events import ONE, TWO, jobs, read


@pytest.fixture(autouse=True)
def bucket() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("memory://lake/one.ndjson", "one"),
        ("memory://lake/", "one two"),
        ("memory://lake", "one two"),
        ("memory://lake/*.ndjson", "one"),
        ("memory://lake/**/*.gz", "two"),
        ("memory://lake/plain", "one"),
    ],
)
def test_files_folders_and_globs_of_a_store_are_read(bucket: Any, url: str, names: str) -> None:
    bucket.pipe("/lake/one.ndjson", ONE.encode())
    bucket.pipe("/lake/day=1/two.json.gz", gzip.compress(TWO.encode()))
    bucket.pipe("/lake/plain", ONE.encode())
    snapshot = read(url)
    assert jobs(snapshot) == names.split()
    said = ("memory:///lake/plain: not read, by name no event file",)
    assert snapshot.warnings == (said if "lake" in url[-5:] else ())


def test_a_store_and_a_file_give_the_same(bucket: Any, tmp_path: Path) -> None:
    text = f"{ONE}\n{TWO}\n"
    bucket.pipe("/events.json", text.encode())
    file = tmp_path / "events.json"
    file.write_text(text)
    assert read("memory://events.json").jobs == read(file).jobs


def test_a_line_that_is_cut_off_is_an_error_that_names_its_place(bucket: Any) -> None:
    bucket.pipe("/cut.json", f"{ONE}\n{TWO[:-9]}".encode())
    with pytest.raises(LineageError, match=r"memory:///cut\.json:2: the last line is incomplete"):
        read("memory://cut.json")


def test_nothing_there_is_an_error() -> None:
    with pytest.raises(LineageError, match="no lineage events at memory://none"):
        read("memory://none")


class Broken(MemoryFileSystem):  # type: ignore[misc]
    """A store whose answers are wrong in one way."""

    protocol = "broken"
    fault = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> Any:
        return super()._strip_protocol(path.replace("broken://", "memory://"))

    def info(self, path: str, **more: Any) -> Any:
        told = super().info(path, **more)
        return told | {"size": told["size"] + 1} if self.fault == "size" else told

    def find(self, path: str, **more: Any) -> Any:
        if self.fault == "listing":
            raise RuntimeError("access denied")
        return super().find(path, **more)

    def open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if self.fault == "gone":
            raise FileNotFoundError(path)
        if self.fault == "refused":
            raise PermissionError("access denied")
        return super().open(path, mode, **more)


@pytest.mark.parametrize(
    ("fault", "url", "error", "message"),
    [
        ("size", "one.json", LineageError, "bytes arrived of the"),
        ("gone", "one.json", LineageError, "not found"),
        ("refused", "one.json", ServiceUnreachableError, "cannot be read: access denied"),
        ("listing", "", ServiceUnreachableError, "cannot be read: access denied"),
    ],
)
def test_an_answer_that_is_wrong_is_an_error(
    bucket: Any,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    url: str,
    error: type[LineageError],
    message: str,
) -> None:
    fsspec.register_implementation("broken", Broken, clobber=True)
    bucket.pipe("/one.json", ONE.encode())
    assert jobs(read(f"broken://{url}")) == ["one"]
    monkeypatch.setattr(Broken, "fault", fault)
    with pytest.raises(error, match=message):
        read(f"broken://{url}")


@pytest.mark.parametrize(
    ("url", "missing", "message"),
    [
        ("hdfs://nn/events", "pyarrow", "hdfs://nn/events: "),
        ("memory://x", "fsspec", "needs fsspec"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, missing: str, message: str
) -> None:
    if missing == "fsspec":
        monkeypatch.delitem(sys.modules, "lineage_backfill.sources.object_store", raising=False)
    else:  # of another test of this process
        for name in [one for one in sys.modules if one.startswith("fsspec.implementations.arrow")]:
            monkeypatch.delitem(sys.modules, name)
    for name in [one for one in sys.modules if one.partition(".")[0] == missing] or [missing]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentMissingError, match=message):
        read(url)


def test_a_url_is_named_on_the_command_line_and_in_a_project_file(
    bucket: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    bucket.pipe("/lake/one.ndjson", ONE.encode())
    assert main(["lineage", "show", "--json", "--events", "memory://lake"]) == 0
    given = json.loads(capsys.readouterr().out)
    Path("lineage-backfill.toml").write_text('[lineage]\nevents = ["memory://lake"]\n')
    assert main(["lineage", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == given["jobs"] != []
