#!/usr/bin/env bash
# TITLE
# Run it with bash. It needs curl, python3 and two variables:
#   AIRFLOW_URL    the address of the api-server, such as http://localhost:8080
#   AIRFLOW_TOKEN  of an account that may start and clear runs: POST $AIRFLOW_URL/auth/token
# Each step clears its tasks in the DAG run of its key, or creates that run with no other task, and
# waits until they have succeeded. It ends at the first failure; run again, it continues there.
set -euo pipefail
: "${AIRFLOW_URL:?}" "${AIRFLOW_TOKEN:?}"

api() { # METHOD PATH [BODY]
    curl --fail-with-body --silent --show-error -X "$1" "$AIRFLOW_URL/api/v2$2" \
        --config <(printf 'oauth2-bearer = "%s"\n' "$AIRFLOW_TOKEN") \
        -H "Content-Type: application/json" ${3:+-d "$3"}
}

# Deletes the job that a task has stored, which the cleared task would count as its own.
forget() { # PATH OF THE TASK
    local status
    status=$(curl --silent --show-error --output /dev/null --write-out '%{http_code}' -X DELETE \
        "$AIRFLOW_URL/api/v2$1/state-store?all_map_indices=true" \
        --config <(printf 'oauth2-bearer = "%s"\n' "$AIRFLOW_TOKEN"))
    # 404, 405: an older Airflow stores none.
    [[ $status =~ ^(204|404|405)$ ]] || { echo "DELETE $1/state-store: $status" >&2; exit 1; }
}

# Reads an answer from stdin and prints what a step asks of it; the other arguments are texts.
tell() { # path|run|marks|above|held|tasks|paths|body|clear|list|state TEXT …
    python3 -c '
import datetime, json, sys
from urllib.parse import quote
what, *texts = sys.argv[1:]
answer = json.loads(sys.stdin.read() or "null")
def update(states):  # a request that sets tasks to these states; nothing if there are none
    marks = [{"task_id": task, "new_state": state} for task, state in states.items()]
    actions = [{"action": "update", "entities": marks, "action_on_non_existence": "skip"}]
    return json.dumps({"actions": actions}) if marks else ""
if what == "path":  # a name as a segment of a path
    print(quote(texts[0], safe=""))
elif what == "run":  # the run of a partition key, else the only one
    key = json.loads(texts[0]).get("partition_key")
    print(next((r["dag_run_id"] for r in answer["dag_runs"] if not key or r["partition_key"] == key), ""))
elif what == "marks":  # the other tasks of the DAG: those above as success, the rest as skipped
    wanted, below = json.loads(texts[0]), {t["task_id"]: t["downstream_task_ids"] for t in answer["tasks"]}
    above, todo = set(), list(wanted)
    while todo:
        name = todo.pop()
        found = {task for task in below if name in below[task]} - above
        above |= found
        todo += found
    print(update({t: "success" if t in above else "skipped" for t in below if t not in wanted}))
elif what == "above":  # the other tasks that the wanted ones wait for directly
    wanted = set(json.loads(texts[0]))
    print(json.dumps([t["task_id"] for t in answer["tasks"]
                      if t["task_id"] not in wanted and not wanted.isdisjoint(t["downstream_task_ids"])]))
elif what == "held":  # of these, the ones that no try has run: as success, so that later tasks run
    held = {t["task_id"] for t in answer["task_instances"] if t["state"] == "skipped" and not t["try_number"]}
    print(update(dict.fromkeys(sorted(held.intersection(json.loads(texts[0]))), "success")))
elif what == "tasks":  # those that a clear would run: the wanted ones, with setups and teardowns
    print(json.dumps(sorted({one["task_id"] for one in answer["task_instances"]})))
elif what == "paths":  # the same, each as a segment of a path
    print(*sorted({quote(one["task_id"], safe="") for one in answer["task_instances"]}))
elif what == "body":  # a new run; one with other tasks waits until they are marked
    hold = datetime.timedelta(seconds=60 if texts[2] else 0)
    after = datetime.datetime.now(datetime.timezone.utc) + hold
    print(json.dumps({**json.loads(texts[0]), "note": texts[1], "run_after": after.isoformat()}))
elif what == "clear":
    print(json.dumps({"dag_run_id": texts[0], "task_ids": json.loads(texts[1]), "note": texts[2],
                      "dry_run": len(texts) > 3, "only_failed": False, "reset_dag_runs": True,
                      "prevent_running_task": True}))
elif what == "list":
    print(json.dumps({"dag_ids": texts[:1], "dag_run_ids": texts[1:2], "task_ids": json.loads(texts[2])}))
elif what == "state":  # active, failed, done by this plan, or ended otherwise
    found = answer["task_instances"]
    if answer["total_entries"] > len(found):
        sys.exit("A mapped task has more instances than Airflow lists at once: run it by hand.")
    states = {one["state"] for one in found} - {"removed"}
    missing = set(json.loads(texts[0])) - {one["task_id"] for one in found}
    if missing or states - {"success", "failed", "upstream_failed", "skipped"}:
        print("active")
    elif states - {"success"}:
        print("failed")
    else:
        print("done" if texts[1] == "ours" or all(one["note"] == texts[2] for one in found) else "ended")
' "$@"
}

wait_for() { # DAG RUN TASKS OURS NOTE: until no task is active; prints how they ended
    local wanted state
    wanted=$(tell list "$1" "$2" "$3" </dev/null)
    while
        state=$(api POST "/dags/~/dagRuns/~/taskInstances/list" "$wanted" | tell state "$3" "$4" "$5")
        [[ $state == active ]]
    do sleep 5; done
    echo "$state"
}

step() { # NAME DAG TASKS QUERY ID RUN
    local dag marks note run state task wanted ours=ours
    dag="/dags/$(tell path "$2" </dev/null)" note="lineage-backfill: $5"
    run=$(api GET "$dag/dagRuns?$4" | tell run "$6")
    if [[ -z $run ]]; then
        echo "$1: create run $5 of DAG $2"
        run=$5
        marks=$(api GET "$dag/tasks" | tell marks "$3")
        api POST "$dag/dagRuns" "$(tell body "$6" "$note" "$marks" </dev/null)" >/dev/null
        if [[ -n $marks ]]; then
            wanted=$(api POST "$dag/clearTaskInstances" "$(tell clear "$run" "$3" "$note" dry </dev/null)" | tell tasks)
            marks=$(api GET "$dag/tasks" | tell marks "$wanted")
            [[ -z $marks ]] || api PATCH "$dag/dagRuns/$run/taskInstances" "$marks" >/dev/null
        fi
    else
        [[ $run == "$5" ]] || ours=
        state=$(wait_for "$2" "$run" "$3" "$ours" "$note")
        if [[ $state == "done" ]]; then echo "$1: done before"; return; fi
        echo "$1: clear $3 in run $run of DAG $2"
        if [[ $run == lb__* ]]; then # made by a backfill, which skipped the tasks below its own
            wanted=$(api GET "$dag/tasks" | tell above "$3")
            marks=$(api POST "/dags/~/dagRuns/~/taskInstances/list" "$(tell list "$2" "$run" "$wanted" </dev/null)" | tell held "$wanted")
            [[ -z $marks ]] || api PATCH "$dag/dagRuns/$(tell path "$run" </dev/null)/taskInstances" "$marks" >/dev/null
        fi
        wanted=$(api POST "$dag/clearTaskInstances" "$(tell clear "$run" "$3" "$note" dry </dev/null)" | tell paths)
        for task in $wanted; do forget "$dag/dagRuns/$(tell path "$run" </dev/null)/taskInstances/$task"; done
        api POST "$dag/clearTaskInstances" "$(tell clear "$run" "$3" "$note" </dev/null)" >/dev/null
    fi
    state=$(wait_for "$2" "$run" "$3" "$ours" "$note")
    if [[ $state == failed ]]; then echo "$1: failed, see run $run of DAG $2" >&2; exit 1; fi
    echo "$1: succeeded"
}

other() { # NAME
    read -r -p "Not in Airflow: run $1, then press Enter. " </dev/tty
}
