"""What runs inside a Spark job asks the JVM in one module, as Spark Connect has none."""

from __future__ import annotations

import re
from pathlib import Path

import spark_runtime
from spark_runtime.connect import _with_session, is_address, session_id

_OF_THE_JVM = re.compile(
    r"\._(jvm|jdf|jc|jsc|jsparkSession|jconf|sc)\b|\.rdd\b|py4j|\bDeltaTable\."
)


def test_the_jvm_is_asked_in_one_module() -> None:
    root = Path(spark_runtime.__file__).parent
    asking = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if _OF_THE_JVM.search(path.read_text())
    }
    assert asking == {"classic.py"}


def test_each_attempt_has_a_session_that_any_machine_can_name() -> None:
    one = _with_session("sc://host:15002", "t-1")
    assert one == f"sc://host:15002/;user_id=lineage-backfill;session_id={session_id('t-1')}"
    assert _with_session("sc://host:15002/", None) == "sc://host:15002/;user_id=lineage-backfill"
    given = _with_session("sc://host:443/;use_ssl=true;user_id=ana", "t-2")
    assert given == f"sc://host:443/;use_ssl=true;user_id=ana;session_id={session_id('t-2')}"
    assert session_id("t-1") != session_id("t-2")
    assert [is_address(one) for one in ("sc://h", "spark://h", "local[2]", "")] == [True] + 3 * [
        False
    ]
