"""Works on several Delta tables in a Spark of its own, each up to another step, until it is killed.

    python tests/race_driver.py FOLDER CASES

CASES are a JSON list of [name, mode, step of the foreign commit, last step]; the table `name` lies
in the folder, beside the templates.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from spark_runtime.session import get_session
from tests.races import Steps, Templates


def main(folder: Path, cases: list[list[str]]) -> None:
    """Come to the last step of each case, one after the other; then wait."""
    spark = get_session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})
    templates, steps = Templates(folder / "templates"), Steps()
    with steps.watched():
        for name, mode, foreign, last in cases:
            path = folder / name
            reached = threading.Event()

            def stay(reached: threading.Event = reached) -> None:
                reached.set()
                threading.Event().wait()

            def add(path: Path = path, same: bool = foreign == last, stay: object = stay) -> None:
                templates.add_foreign(path)
                if same:
                    stay()  # type: ignore[operator]

            steps.actions[str(path), last] = stay
            steps.actions[str(path), foreign] = add
            work = threading.Thread(
                target=steps.write, args=(spark, path, mode, 2), daemon=True, name=name
            )
            work.start()
            while not reached.wait(0.02):
                assert work.is_alive(), name
        (folder / "all-reached").touch()
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
