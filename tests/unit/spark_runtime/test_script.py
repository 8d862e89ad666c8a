"""Scripts are run one within another, and at once in threads: each has its own run and main."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.errors import Cancelled, EntrypointError
from spark_runtime.job import script
from spark_runtime.job.context import RunContext
from spark_runtime.job.runner import run
from spark_runtime.job.script import Script, entered

SCRIPT = """
from __future__ import annotations

import __main__
import argparse
import pickle
import sys
from dataclasses import dataclass, field, fields
from typing import ClassVar, get_type_hints

from pyspark import cloudpickle

from meeting import meet, note
from spark_runtime import read, run_context, write_partitions

NAME = run_context("j").spec
rows = read("orders")
meet()


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
    meet()
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
    meet()
    assert MARK == "mine"
    del __main__.MARK
    assert "MARK" not in globals()
    write_partitions(rows)
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
    """Runs scripts in threads, which meet each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: list[str] = []
        self.notes: dict[str, dict[str, Any]] = {}
        self.barrier = threading.Barrier(2, timeout=30)

    def context(self, name: str) -> RunContext:
        return RunContext(cast("Any", Attempt(name, self.log)))

    def script(self, text: str, name: str = "job.py") -> Script:
        path = self.folder / name
        path.write_text(text)
        return Script(path)

    def note(self, **notes: Any) -> None:
        self.notes[threading.current_thread().name] = notes


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    meeting = cast("Any", ModuleType("meeting"))
    meeting.meet, meeting.note, meeting.bench = bench.barrier.wait, bench.note, bench
    monkeypatch.setitem(sys.modules, "meeting", meeting)
    arguments, main = sys.argv, sys.modules["__main__"]
    yield bench
    assert sys.argv is arguments
    assert sys.modules["__main__"] is main
    assert script._running.all() == []


def in_threads(**work: Callable[[], object]) -> dict[str, Any]:
    """Do each in a thread of its name; return what they return, or the error of one."""
    done: dict[str, Any] = {}

    def do(name: str) -> None:
        try:
            done[name] = work[name]()
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            traceback.print_exc()
            done[name] = error

    threads = [threading.Thread(target=do, args=(name,), name=name) for name in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return done


@pytest.mark.parametrize("files", [("one.py", "two.py"), ("one.py", "one.py")])
def test_scripts_at_once_have_their_own_runs_and_are_each_main(
    bench: Bench, files: tuple[str, str]
) -> None:
    scripts = {name: bench.script(SCRIPT, file) for name, file in zip("AB", files, strict=True)}
    done = in_threads(
        A=lambda: scripts["A"].run(bench.context("A")),
        B=lambda: scripts["B"].run(bench.context("B")),
    )
    assert done == {"A": None, "B": None}
    assert sorted(bench.log) == [
        "A reads orders",
        "A writes rows of A",
        "B reads orders",
        "B writes rows of B",
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


def test_a_script_alone_is_main_for_every_thread(bench: Bench) -> None:
    single = bench.script("""
import __main__, sys
from meeting import bench
from spark_runtime import read, run_context
import threading
seen = []
thread = threading.Thread(target=lambda: seen.append(vars(sys.modules["__main__"]) is globals()))
thread.start()
thread.join()
bench.note(main=vars(__main__) is globals(), seen=seen, argv=sys.argv, at=(__file__, __package__))
""")
    in_threads(A=lambda: single.run(bench.context("A")))
    path = str(single.path)
    seen = {"main": True, "seen": [True], "argv": [path], "at": (path, "")}
    assert bench.notes == {"A": seen}


def test_a_script_that_outlasts_another_leaves_the_process_as_it_was(bench: Bench) -> None:
    first = bench.script("from meeting import meet; meet(); meet()", "first.py")
    second = bench.script("from meeting import meet; meet(); meet(); meet()", "second.py")

    def outlasted() -> None:
        first.run(bench.context("A"))
        bench.barrier.wait()

    done = in_threads(A=outlasted, B=lambda: second.run(bench.context("B")))
    assert done == {"A": None, "B": None}


def test_threads_of_a_script_find_the_only_run_and_never_another(bench: Bench) -> None:
    helper = """
import threading
from concurrent.futures import ThreadPoolExecutor
from meeting import bench, meet
from spark_runtime import read, run_context
run = run_context("j")
name = run.spec
if name == "A":
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(read, "alone").result()
        assert pool.submit(run_context).result() is run
        meet()
        meet()
        failures = [pool.submit(one).exception() for one in (lambda: read("both"), run_context)]
        given = pool.submit(run.read, "given").result()
        meet()
        bench.note(alone=alone, given=given, failures=failures)
else:
    meet()
    meet()
"""
    both = bench.script(helper)

    def second() -> None:
        bench.barrier.wait()
        both.run(bench.context("B"))

    done = in_threads(A=lambda: both.run(bench.context("A")), B=second)
    assert done == {"A": None, "B": None}
    noted = bench.notes["A"]
    assert (noted["alone"], noted["given"]) == ("rows of A", "rows of A")
    for failure in noted["failures"]:
        assert isinstance(failure, EntrypointError)
        assert failure.message == (
            "this process does 2 runs at once, and this thread belongs to none of them"
        )
        assert "use what it returns in the other threads" in failure.hint
    assert bench.log == ["A reads alone", "A reads given"]


def test_a_function_beside_a_script_has_its_own_run(
    bench: Bench, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    document["job"]["entrypoint"] = "job.py"
    document["inputs"] = []
    monkeypatch.syspath_prepend(str(bench.folder))
    nothing: Any = SimpleNamespace(latest_version=lambda target: None, state=lambda *args: None)
    spark: Any = None
    bench.script("from meeting import meet; meet(); meet()")

    def function() -> list[Any]:
        bench.barrier.wait()
        context = bench.context("B")
        with entered(context), ThreadPoolExecutor(1) as pool:
            found: list[Any] = [script.read("own"), script.run_context("j") is context]
            found.append(pool.submit(script.read, "mine").exception())
        bench.barrier.wait()
        return found

    done = in_threads(A=lambda: run(spark, parse_spec(document), nothing), B=function)
    assert done["B"][:2] == ["rows of B", True]
    assert isinstance(done["B"][2], EntrypointError)
    assert "ended without writing n:days" in done["A"].error.message


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
        ("from spark_runtime.errors import Cancelled; raise Cancelled", Cancelled),
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


def test_threads_that_begin_runs_do_not_end_those_of_others(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = SimpleNamespace(latest_version=lambda target: None, state=lambda *args: None)
    monkeypatch.setattr(script, "Tables", lambda spark: nothing)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script, "get_session", lambda conf: None)
    document["inputs"] = []

    def begin(name: str) -> RunContext:
        path = tmp_path / f"{name}.json"
        told = {**document, "run_id": name, "result_path": str(tmp_path / f"{name}.result")}
        path.write_text(json.dumps(told))
        return script.run_context(arguments=["--spec", str(path)])

    barrier = threading.Barrier(3, timeout=30)
    failures: list[Exception] = []

    def own(name: str) -> list[RunContext]:
        begun = begin(name)
        barrier.wait()
        barrier.wait()
        return [begun, script.run_context()]

    def other() -> None:
        barrier.wait()
        for one in (script.run_context, lambda: script.read("orders")):
            with pytest.raises(EntrypointError, match="2 runs at once") as raised:
                one()
            failures.append(raised.value)
        barrier.wait()

    done = in_threads(A=lambda: own("A"), B=lambda: own("B"), C=other)
    assert len(failures) == 2
    for name in "AB":
        begun, again = done[name]
        assert begun is again
        assert (begun.spec.run_id, begun.result) == (name, None)
    # Threads that have ended have no use for their runs.
    last = begin("D")
    for name in "AB":
        assert "began another run" in done[name][0].result.error.message
    assert last.result is None
    assert script.run_context() is last
    last.abandon()
    for one in script._running.all():
        script._running.drop(one)
