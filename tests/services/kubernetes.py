"""A stand-in for a Kubernetes API server, on the loopback, whose pods are processes.

It is not Kubernetes. It has no scheduler, images, accounts or network of its own: a pod is
a process on this machine, with an address of its own on the loopback, and sees all of its files.
What it shares with Kubernetes is what Spark asks it: pods, config maps and services that are
created once, listed by labels, watched, deleted with what they own, and whose logs can be read.
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lineage_backfill.engines.runtime import find_java
from tests.e2e.test_spark_cluster import JAVA, SETTINGS, Bench
from tests.services.yarn import JOBS, SPARK

_KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "services": "Service"}
_VERBS = ["create", "delete", "get", "list", "patch", "watch"]
_GRACE = 5.0  # seconds for a pod to end before it is killed
_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: Options of an executor's process, and the variables of its container with their values.
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}

Object = dict[str, Any]
Key = tuple[str, str]  # what kind of object, and its name


class Kubernetes:
    """The objects of one namespace, and the processes of its pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.created: list[str] = []  # names of pods
        self._objects: dict[Key, Object] = {}
        self._events: list[tuple[str, str, Object]] = []  # what happened, to which kind and object
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._containers: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    # The server

    def start(self) -> None:
        """Answer, at the same address as before."""
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Answer no more; the pods continue."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and end all pods."""
        self.stop()
        with self._changed:
            names = [name for kind, name in self._objects if kind == "pods"]
        for name in names:
            self.delete("pods", name)
        for container in self._containers.values():
            container.join()

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return self._server is not None

    @property
    def address(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._port}"

    def settings(self, mode: str, **more: Any) -> dict[str, Any]:
        """Return the settings of an engine whose applications run here."""
        conf = {**SETTINGS["conf"], "spark.executor.instances": "1"}
        del conf["spark.cores.max"]
        if mode == "cluster":
            del conf["spark.driver.host"]
        conf["spark.kubernetes.container.image"] = "none"
        conf["spark.kubernetes.driver.master"] = self.address
        environment = {**SETTINGS["env"], "PATH": os.environ["PATH"], "KUBECONFIG": os.devnull}
        environment["SPARK_SUBMIT_OPTS"] = JAVA
        python = {"python": sys.executable, "deploy_mode": mode}
        return {"conf": conf, "env": environment, **python, **more}

    def bench(self, folder: Path, *, mode: str = "cluster", **more: Any) -> Bench:
        """Return a project whose jobs run here."""
        jobs = JOBS.replace("FOLDER", str(folder))
        settings = self.settings(mode, **more)
        volume = "spark.kubernetes.driver.volumes.hostPath.project"
        settings["conf"] |= {
            f"{volume}.mount.path": str(folder),
            f"{volume}.options.path": str(folder),
        }
        return Bench(folder, f"k8s://{self.address}", jobs, **settings)

    # Objects

    def pod(self, name: str) -> Object | None:
        """Return a pod as it is."""
        with self._changed:
            return copy.deepcopy(self._objects.get(("pods", name)))

    def select(self, kind: str, wanted: Callable[[Object], bool]) -> tuple[int, list[Object]]:
        """Return the version of the whole, and objects."""
        with self._changed:
            found = [o for (k, _), o in self._objects.items() if k == kind and wanted(o)]
            return len(self._events), copy.deepcopy(found)

    def events(self, kind: str, version: int) -> Iterator[tuple[str, Object] | None]:
        """Yield what happens to objects of a kind after a version, and None once in a while."""
        while self.is_up:
            with self._changed:
                if len(self._events) <= version:
                    self._changed.wait(1)
                new = copy.deepcopy(self._events[version:])
            version += len(new)
            yield from ((what, one) for what, its_kind, one in new if its_kind == kind)
            if not new:
                yield None

    def create(self, kind: str, given: Object) -> Object | None:
        """Create an object; None if its name is taken."""
        name = given["metadata"]["name"]
        with self._changed:
            if (kind, name) in self._objects:
                return None
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            given["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            if kind == "pods":
                self.created.append(name)
                number = len(self.created) + 1
                address = f"127.0.{number // 250}.{number % 250 + 1}"
                given["status"] = {"phase": "Pending", "podIP": address, "startTime": now}
                self._containers[name] = threading.Thread(target=self._run, args=(name,))
            made = self._set("ADDED", kind, given)
        if kind == "pods":
            self._containers[name].start()
        return made

    def delete(self, kind: str, name: str) -> Object | None:
        """Delete an object and what it owns, a pod once its process has ended; None if unknown."""
        with self._changed:
            known = self._objects.get((kind, name))
            if known is None or "deletionTimestamp" in known["metadata"]:
                return known
            known["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
            self._set("MODIFIED", kind, known)
        if kind == "pods":
            threading.Thread(target=self._end, args=(name,), daemon=True).start()
        else:
            self._remove(kind, name)
        return known

    def _set(self, what: str, kind: str, one: Object) -> Object:
        with self._changed:
            one["metadata"] |= {"namespace": "default", "resourceVersion": str(len(self._events))}
            one |= {"kind": _KINDS[kind], "apiVersion": "v1"}
            self._objects[kind, one["metadata"]["name"]] = one
            self._events.append((what, kind, copy.deepcopy(one)))
            self._changed.notify_all()
            return one

    def _remove(self, kind: str, name: str) -> None:
        with self._changed:
            gone = self._objects.pop((kind, name))
            self._events.append(("DELETED", kind, gone))
            self._changed.notify_all()
            owned = [
                key
                for key, one in self._objects.items()
                for owner in one["metadata"].get("ownerReferences", ())
                if owner["uid"] == gone["metadata"]["uid"]
            ]
        for key in owned:
            self.delete(*key)

    # Pods

    def log(self, name: str) -> bytes:
        """Return the output of a pod."""
        path = self.folder / name / "log.txt"
        return path.read_bytes() if path.exists() else b""

    def _run(self, name: str) -> None:
        """Be the container of a pod."""
        pod = self._once_mounted(name)
        if pod is None:
            return
        command, environment = self._container(pod)
        folder = self.folder / name
        work = folder / "work"
        work.mkdir()
        with self._changed, (folder / "log.txt").open("wb") as log:
            if self._is_ending(name):
                return
            process = subprocess.Popen(
                command,
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes[name] = process
            self._phase(name, "Running", {"running": {}})
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _kill(process)  # with the first process of a container, all others end
        code = process.wait()
        shutil.rmtree(work, ignore_errors=True)
        code = 128 - code if code < 0 else code
        why = "Error" if code else "Completed"
        phase = "Failed" if code else "Succeeded"
        self._phase(name, phase, {"terminated": {"exitCode": code, "reason": why}})

    def _once_mounted(self, name: str) -> Object | None:
        """Return a pod once the config maps that it mounts exist; None if it is deleted."""
        while True:
            with self._changed:
                if self._is_ending(name):
                    return None
                pod = copy.deepcopy(self._objects["pods", name])
                maps = {
                    one["name"]: self._objects.get(("configmaps", one["configMap"]["name"]))
                    for one in pod["spec"].get("volumes", ())
                    if "configMap" in one
                }
                if not all(maps.values()):
                    self._changed.wait(1)
                    continue
            for volume in pod["spec"].get("volumes", ()):
                folder = self.folder / name / volume["name"]
                folder.mkdir(parents=True)
                for file, text in (maps.get(volume["name"]) or {}).get("data", {}).items():
                    (folder / file).write_text(text)
            return pod

    def _is_ending(self, name: str) -> bool:
        pod = self._objects.get(("pods", name))
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def _container(self, pod: Object) -> tuple[list[str], dict[str, str]]:
        """Return command and environment, as Spark's image makes them of a container."""
        (container,) = pod["spec"]["containers"]
        name, address = pod["metadata"]["name"], pod["status"]["podIP"]
        fields = {"status.podIP": address, "metadata.name": name}
        given = {
            one["name"]: one.get("value") or fields.get(_field(one), "")
            for one in container.get("env", ())
        }
        mounts = {
            one["mountPath"]: str(self.folder / name / one["name"])
            for one in container.get("volumeMounts", ())
            if not one["mountPath"].startswith(str(self.folder.parent))  # a folder of this machine
        }

        def here(text: str) -> str:
            for there, path in mounts.items():
                text = text.replace(there, path)
            return text

        ours = {k: os.environ[k] for k in ("PATH", "HOME", "JAVA_HOME") if k in os.environ}
        environment = {k: here(v) for k, v in {**ours, "SPARK_HOME": str(SPARK), **given}.items()}
        role, *arguments = map(here, container["args"])
        if role == "driver":
            address = environment["SPARK_DRIVER_BIND_ADDRESS"]
            # In place of the name of its service, which only Kubernetes can resolve.
            reached = [f"spark.driver.{what}={address}" for what in ("bindAddress", "host")]
            command = [str(SPARK / "bin" / "spark-submit"), "--deploy-mode", "client"]
            command += [part for one in reached for part in ("--conf", one)]
            return [*command, *arguments], environment
        prefix = "SPARK_JAVA_OPT_"
        numbers = sorted(int(k.removeprefix(prefix)) for k in given if k.startswith(prefix))
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        java = [environment[f"{prefix}{number}"] for number in numbers]
        paths = f"{environment.get('SPARK_CONF_DIR', '')}:{SPARK}/jars/*"
        options = [part for o, k in _OPTIONS.items() for part in (o, environment[k])]
        command = [find_java(os.environ), *java, f"-Xms{memory}", f"-Xmx{memory}", "-cp", paths]
        return [*command, _EXECUTOR, *options], environment

    def _phase(self, name: str, phase: str, state: Mapping[str, Any]) -> None:
        with self._changed:
            pod = self._objects.get(("pods", name))
            if pod is not None:
                (container,) = pod["spec"]["containers"]
                status = {"name": container["name"], "image": "none", "state": state}
                pod["status"] |= {"phase": phase, "containerStatuses": [status]}
                self._set("MODIFIED", "pods", pod)

    def _end(self, name: str) -> None:
        container, process = self._containers[name], self._processes.get(name)
        if process is not None and container.is_alive():
            with suppress(ProcessLookupError):  # it may end meanwhile
                os.kill(process.pid, signal.SIGTERM)
            container.join(_GRACE)
            _kill(process)
        container.join()
        self._remove("pods", name)


class _Handler(BaseHTTPRequestHandler):
    """Answers requests of one cluster."""

    cluster: Kubernetes
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer with an object, a list, what happens to it, a log, or what is here at all."""
        kind, name, part = self._where()
        if self.headers.get("Upgrade"):
            self._answer(503, _status(503, "no websockets"))  # then they ask again, without
        elif not kind:
            self._discover()
        elif part == "log":
            self._send(200, self.cluster.log(name), "text/plain")
        elif name:
            _, found = self.cluster.select(kind, lambda one: one["metadata"]["name"] == name)
            self._answer_with(found[0] if found else None)
        elif "watch" in self._query:
            self._watch(kind)
        else:
            version, items = self.cluster.select(kind, self._wanted)
            listed = {"kind": f"{_KINDS.get(kind, '')}List", "apiVersion": "v1", "items": items}
            self._answer(200, {**listed, "metadata": {"resourceVersion": str(version)}})

    def do_POST(self) -> None:
        """Create an object."""
        kind, _, _ = self._where()
        self._created(kind, json.loads(self._body()))

    def do_PATCH(self) -> None:
        """Create an object by server-side apply; nothing here is changed by it."""
        kind, _, _ = self._where()
        if "apply-patch" not in self.headers["Content-Type"]:
            self._answer(415, _status(415, self.headers["Content-Type"]))
            return
        self._created(kind, json.loads(self._body()))

    def do_DELETE(self) -> None:
        """Delete an object, or all with some labels."""
        kind, name, _ = self._where()
        self._body()
        if name:
            self._answer_with(self.cluster.delete(kind, name))
            return
        for one in self.cluster.select(kind, self._wanted)[1]:
            self.cluster.delete(kind, one["metadata"]["name"])
        self._answer(200, _status(200, ""))

    def _where(self) -> tuple[str, str, str]:
        """Return kind, name, and part of what a request is about."""
        url = urlsplit(self.path)
        self._query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if "namespaces" not in parts:
            return "", "", ""
        kind, name, part, *_ = [*parts[parts.index("namespaces") + 2 :], "", "", ""]
        return kind, name, part

    def _wanted(self, one: Object) -> bool:
        """Whether an object is selected."""
        field = self._query.get("fieldSelector", "")
        if field and field != f"metadata.name={one['metadata']['name']}":
            return False
        labels = _labels(one)
        for term in filter(None, self._query.get("labelSelector", "").split(",")):
            key, sign, value = term.partition("!=" if "!=" in term else "=")
            if (labels.get(key.lstrip("!")) == value) != (sign == "="):
                return False
        return True

    def _watch(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        version = self._query.get("resourceVersion", "0")
        with suppress(OSError):
            if version == "0":
                at, there = self.cluster.select(kind, self._wanted)
                for one in there:
                    self._chunk("ADDED", one)
            else:
                at = int(version)
            for event in self.cluster.events(kind, at):
                if event is not None and self._wanted(event[1]):
                    self._chunk(*event)
        self.close_connection = True

    def _chunk(self, what: str, one: Object) -> None:
        line = json.dumps({"type": what, "object": one}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _discover(self) -> None:
        path = urlsplit(self.path).path
        resources = [
            {"name": k, "singularName": "", "namespaced": True, "kind": kind, "verbs": _VERBS}
            for k, kind in _KINDS.items()
        ]
        answers: dict[str, Object] = {
            "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources},
        }
        self._answer_with(answers.get(path.rstrip("/")))

    def _created(self, kind: str, given: Object) -> None:
        made = self.cluster.create(kind, given)
        if made is None:
            name = given["metadata"]["name"]
            self._answer(409, _status(409, f'{kind} "{name}" already exists'))
        else:
            self._answer(201, made)

    def _answer_with(self, found: Object | None) -> None:
        if found is None:
            self._answer(404, _status(404, f"{self.path} not found"))
        else:
            self._answer(200, found)

    def _answer(self, code: int, document: Object) -> None:
        self._send(code, json.dumps(document).encode(), "application/json")

    def _send(self, code: int, data: bytes, type_: str) -> None:
        if not self.cluster.is_up:
            self.close_connection = True
            return
        self.send_response(code)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


def _status(code: int, message: str) -> Object:
    reasons = {404: "NotFound", 409: "AlreadyExists"}
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    outcome = {"status": "Success" if code == 200 else "Failure", "code": code}
    return {**head, **outcome, "message": message, "reason": reasons.get(code, "")}


def _labels(one: Object) -> dict[str, str]:
    found: dict[str, str] = one["metadata"].get("labels") or {}
    return found


def _field(variable: Object) -> str:
    return str(variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", ""))


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
