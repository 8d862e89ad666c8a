"""Does a run spec of the contract suite, whose path is the argument, without Spark.

The entrypoint says what: `fake:succeed`, `fake:fail`, `fake:crash`, or `fake:sleep` for as many
seconds as its parameters name. What succeeds leaves its token in the file that they name.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
action = spec["job"]["entrypoint"].partition(":")[2]
print(f"running {spec['run_id']} attempt {spec['attempt']}", flush=True)
if action == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
if action == "sleep":
    time.sleep(spec["parameters"]["seconds"])
error = None
if action == "fail":
    error = {"class": "ValueError", "message": "no such column", "transient": False}
else:
    with Path(spec["parameters"]["journal"]).open("a", encoding="utf-8") as journal:
        journal.write(f"{spec['run_id']} {spec['token']}\n")
named = {name: spec[name] for name in ("run_id", "attempt", "token")}
result = {**named, "state": "failed" if error else "succeeded", "outputs": [], "error": error}
path = Path(spec["result_path"])
unfinished = path.with_suffix(".tmp")
unfinished.write_text(json.dumps(result), encoding="utf-8")
unfinished.replace(path)
sys.exit(error is not None)
