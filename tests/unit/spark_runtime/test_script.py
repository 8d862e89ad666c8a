"""Scripts are run one after another and one within another: each has its own run and main."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from spark_runtime.errors import EntrypointError, Stopped
from spark_runtime.job import script
from spark_runtime.job.context import RunContext
from spark_runtime.job.script import Script

SCRIPT = """
from __future__ import annotations

import __main__
import argparse
import pickle
import os
import sys
from dataclasses import dataclass, field, fields
from typing import ClassVar, get_type_hints

from pyspark import cloudpickle

from meeting import note
from spark_runtime import read, run_context, write_partitions

NAME = run_context("j").spec
rows = read("orders")


class Money(int):
    pass


@dataclass
class Order:
    shared: ClassVar[list[str]] = []
    price: Money = field(default_factory=Money)


def named():
    return NAME


if __name__ == "__main__":
    argparse.ArgumentParser().parse_args()
    whole = pickle.loads(pickle.dumps(Order(Money(3))))
    note(
        file=__main__.__file__,
        is_own=sys.modules["__main__"].NAME is NAME and vars(__main__) is globals(),
        fields=[one.name for one in fields(Order)],
        hints=get_type_hints(Order)["price"] is Money,
        pickled=type(whole) is Order and whole.price == 3,
        by_value=cloudpickle.loads(cloudpickle.dumps(named))(),
        arguments=sys.argv[1:],
    )
    __main__.MARK = "mine"
    assert MARK == "mine"
    del __main__.MARK
    assert "MARK" not in globals()
    write_partitions(rows)
    sys.argv += ["--left"]
    os.environ["LEFT"] = "by a script"
    os.chdir("/")
"""


class Attempt:
    """An attempt that notes what it reads and writes."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.spec, self.log, self.result, self.spark = name, log, None, None

    def read(self, dataset: str, **_options: Any) -> str:
        self.log.append(f"{self.spec} reads {dataset}")
        return f"rows of {self.spec}"

    def write(self, frame: str, *_options: Any) -> None:
        self.log.append(f"{self.spec} writes {frame}")


class Bench:
    """Runs scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: list[str] = []
        self.notes: dict[str, dict[str, Any]] = {}

    def context(self, name: str) -> RunContext:
        return RunContext(cast("Any", Attempt(name, self.log)))

    def script(self, text: str, name: str = "job.py") -> Script:
        path = self.folder / name
        path.write_text(text)
        return Script(path)

    def note(self, **notes: Any) -> None:
        self.notes[str(script.run_context().spec)] = notes


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    meeting = cast("Any", ModuleType("meeting"))
    meeting.note, meeting.bench = bench.note, bench
    monkeypatch.setitem(sys.modules, "meeting", meeting)
    arguments, main = sys.argv, sys.modules["__main__"]
    yield bench
    assert sys.argv is arguments
    assert sys.modules["__main__"] is main
    assert script._running == []


@pytest.mark.parametrize("files", [("one.py", "two.py"), ("one.py", "one.py")])
def test_scripts_one_after_another_have_their_own_runs_and_are_each_main(
    bench: Bench, files: tuple[str, str]
) -> None:
    scripts = {name: bench.script(SCRIPT, file) for name, file in zip("AB", files, strict=True)}
    before = dict(os.environ), Path.cwd()
    for name, one in scripts.items():
        one.run(bench.context(name))
        assert (dict(os.environ), Path.cwd()) == before
    assert bench.log == [
        *("A reads orders", "A writes rows of A"),
        *("B reads orders", "B writes rows of B"),
    ]
    assert bench.notes == {
        name: {
            "file": str(scripts[name].path),
            "is_own": True,
            "fields": ["price"],
            "hints": True,
            "pickled": True,
            "by_value": name,
            "arguments": [],
        }
        for name in "AB"
    }


def test_every_thread_of_a_script_finds_its_run(bench: Bench) -> None:
    bench.script("""
from concurrent.futures import ThreadPoolExecutor
from meeting import note
from spark_runtime import read, run_context
with ThreadPoolExecutor(1) as pool:
    same = pool.submit(run_context).result() is run_context()
    note(rows=pool.submit(read, "own").result(), same=same)
""").run(bench.context("A"))
    assert bench.notes == {"A": {"rows": "rows of A", "same": True}}


def test_a_script_within_another_has_its_own_run(bench: Bench) -> None:
    inner = bench.script(
        """
import sys
from meeting import bench, note
from spark_runtime import read, run_context
read("inner")
bench.inner = run_context().spec, list(sys.argv), __name__
""",
        "inner.py",
    )
    outer = bench.script(
        """
import __main__, sys
from meeting import bench
from spark_runtime import read
sys.argv = ["outer", "--own"]
main = sys.modules["__main__"]
bench.within()
read("outer")
assert sys.modules["__main__"] is main
assert sys.argv == ["outer", "--own"]
""",
        "outer.py",
    )
    cast("Any", bench).within = lambda: inner.run(bench.context("B"))
    outer.run(bench.context("A"))
    assert bench.log == ["B reads inner", "A reads outer"]
    assert cast("Any", bench).inner == ("B", [str(inner.path)], "__main__")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import sys; sys.exit(3)", EntrypointError),
        ("import sys; sys.exit()", None),
        ("1 / 0", ZeroDivisionError),
        ("def f(:", SyntaxError),
        ("from spark_runtime.errors import Stopped; raise Stopped(143)", Stopped),
        # Its own rules, not those of the module that runs it.
        ("def f(n: int): pass\nassert f.__annotations__ == {'n': int}", None),
        ("# coding: latin-1\nassert len('\u00e9') == 2", None),
    ],
)
def test_how_a_script_ends_is_how_its_run_ends(
    bench: Bench, text: str, error: type[BaseException] | None
) -> None:
    one = bench.script(text)
    if error is None:
        one.run(bench.context("A"))
        return
    with pytest.raises(error) as raised:
        one.run(bench.context("A"))
    if error is ZeroDivisionError:
        assert "1 / 0" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("call", ["run_context()", "run_context('days')", "in_thread()"])
def test_a_script_that_is_a_job_has_one_run_only(bench: Bench, call: str) -> None:
    one = bench.script(
        f"""
import threading
from meeting import bench
from spark_runtime import run_context

def in_thread():
    failed = []
    def begin():
        try:
            run_context("days")
        except Exception as error:
            failed.append(error)
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join(30)
    raise failed[0]

run = run_context("days")
assert run_context("others") is run
run._attempt.result = "ended"
{call}
"""
    )
    with pytest.raises(EntrypointError, match="the run of this script has ended"):
        one.run(bench.context("A"))
    again = bench.script("from spark_runtime import run_context\nassert run_context().spec == 'B'")
    again.run(bench.context("B"))
