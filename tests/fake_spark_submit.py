"""A spark-submit without Spark: takes its options, refuses others, and does run specs itself."""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

# Run as a file: the folder above holds the package `tests`.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import fake_worker

OPTIONS = (
    "--master --deploy-mode --name --packages --repositories --jars --py-files --files --archives"
)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in OPTIONS.split():
        parser.add_argument(option, default="")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("main", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    assert all("=" in setting for setting in options.conf)
    assert "spark_runtime" in options.main.read_text()
    names = [
        name for file in options.py_files.split(",") for name in zipfile.ZipFile(file).namelist()
    ]
    assert "spark_runtime/__main__.py" in names
    assert all(Path(jar).exists() for jar in options.jars.split(",") if jar)
    command, flag, path = options.arguments
    assert (command, flag) == ("run", "--spec")
    (spec_file,) = (Path(one) for one in options.files.split(",") if Path(one).name == path)
    return int(fake_worker.run_all(spec_file, Path.cwd() / "journal"))


sys.exit(main())
