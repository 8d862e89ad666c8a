"""What a compose file and a Dockerfile must not do, as rules that name what they find.

The schema is a part of the Compose Specification (https://github.com/compose-spec/compose-spec):
what stands in our file, and nothing else. The rules on Dockerfiles are those of hadolint
(https://github.com/hadolint/hadolint) that have a number here, and some of Docker's best practices.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True}
WORDS: dict[str, Any] = {"type": "array", "items": TEXT, "minItems": 1}
TIME: dict[str, Any] = {"type": "string", "pattern": r"^(\d+(us|ms|s|m|h))+$"}


def _only(required: tuple[str, ...] = (), **members: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": members,
        "required": list(required),
        "additionalProperties": False,
    }


def _named(value: Any) -> dict[str, Any]:
    name = r"^[a-zA-Z0-9._-]+$"
    return {"type": "object", "patternProperties": {name: value}, "additionalProperties": False}


SERVICE = _only(
    image=TEXT,
    build=_only(("context",), context=TEXT, dockerfile=TEXT),
    init={"type": "boolean"},
    cap_drop=TEXTS,
    security_opt=TEXTS,
    profiles=TEXTS,
    entrypoint=WORDS,
    command=WORDS,
    environment=_named(TEXT | {"minLength": 0}),
    ports=TEXTS,
    volumes=TEXTS,
    depends_on=_named(
        _only(
            ("condition",),
            condition={
                "enum": ["service_started", "service_healthy", "service_completed_successfully"]
            },
        )
    ),
    healthcheck=_only(
        ("test",),
        test=WORDS | {"prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}], "minItems": 2},
        interval=TIME,
        timeout=TIME,
        start_period=TIME,
        retries={"type": "integer", "minimum": 1},
    ),
    deploy=_only(replicas={"type": "integer", "minimum": 1}),
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
)
SCHEMA = _only(
    ("name", "services"),
    name={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
    services=_named(SERVICE),
    volumes=_named({"type": ["object", "null"], "maxProperties": 0}),
) | {"patternProperties": {"^x-": {}}}

#: An image by its version: a tag with a number in it that has two parts at least, or a digest.
_PINNED = re.compile(r"^[a-z0-9][a-z0-9._/-]*(:v?\d+\.\d[\w.-]*|@sha256:[0-9a-f]{64})$")
_SECRET = re.compile(r"password|secret|token|api_?key", re.IGNORECASE)
#: A variable without which nothing starts, and which has no default.
_REQUIRED = re.compile(r"^\$\{[A-Z_]+:\?[^}]+\}$")
_LOOPBACK = re.compile(r"^127\.0\.0\.1:(\d+|\$\{[A-Z_]+:-\d+\}):\d+$")

Compose = dict[str, Any]


def compose_faults(compose: Compose, folder: Path) -> list[str]:
    """Return what is wrong with a compose file that lies in the folder."""
    schema = [
        f"schema: {'.'.join(map(str, error.absolute_path)) or 'file'}: {error.message}"
        for error in Draft202012Validator(SCHEMA).iter_errors(compose)
    ]
    return schema or [fault for rule in COMPOSE_RULES for fault in rule(compose, folder)]


def _images(compose: Compose, _: Path) -> Iterator[str]:
    for name, service in compose["services"].items():
        if not _PINNED.match(service.get("image", "")):
            yield f"{name}: its image is not pinned to a version"


def _ports(compose: Compose, _: Path) -> Iterator[str]:
    for name, service in compose["services"].items():
        for port in service.get("ports", ()):
            if not _LOOPBACK.match(port):
                yield f"{name}: {port} is not on the loopback alone"


def _health(compose: Compose, _: Path) -> Iterator[str]:
    services = compose["services"]
    for name, service in services.items():
        if "tools" not in service.get("profiles", ()) and "healthcheck" not in service:
            yield f"{name}: nothing tells whether it is healthy"
        for other, told in service.get("depends_on", {}).items():
            if other not in services:
                yield f"{name}: depends on {other}, which is no service"
            elif told["condition"] != "service_healthy" or "healthcheck" not in services[other]:
                yield f"{name}: does not wait until {other} is healthy"


def _passwords(compose: Compose, _: Path) -> Iterator[str]:
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if _SECRET.search(variable) and not _REQUIRED.match(value):
                yield f"{name}: {variable} stands in the file, or has a default"


def _volumes(compose: Compose, folder: Path) -> Iterator[str]:
    named = set(compose.get("volumes", ()))
    used = set()
    for name, service in compose["services"].items():
        for volume in service.get("volumes", ()):
            source, target, *options = volume.split(":")
            used.add(source)
            if not target.startswith("/"):
                yield f"{name}: {volume} is mounted nowhere"
            if source.startswith("."):
                if not (folder / source).exists() or options != ["ro"]:
                    yield f"{name}: {source} is no file of ours, or may be written to"
            elif source not in named:
                yield f"{name}: {source} is no volume of the file"
    for volume in sorted(named - used):
        yield f"{volume}: a volume that nobody uses"


def _rights(compose: Compose, folder: Path) -> Iterator[str]:
    for name, service in compose["services"].items():
        if "build" not in service:
            continue
        context = folder / service["build"]["context"]
        if not (context / service["build"].get("dockerfile", "Dockerfile")).is_file():
            yield f"{name}: there is nothing to build it from"
        if service.get("cap_drop") != ["ALL"]:
            yield f"{name}: keeps capabilities that it does not need"


COMPOSE_RULES: tuple[Callable[[Compose, Path], Iterator[str]], ...] = (
    _images,
    _ports,
    _health,
    _passwords,
    _volumes,
    _rights,
)


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: `RUN`, and all that it runs."""

    name: str
    rest: str

    def words(self) -> list[str]:
        """Return its words without options."""
        return [word for word in self.rest.split() if not word.startswith("--")]


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile, continued lines joined, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n", " ", lines)
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [Instruction(part[0].upper(), part[1] if len(part) > 1 else "") for part in parts]


def dockerfile_faults(text: str, context: Path) -> list[str]:
    """Return what is wrong with a Dockerfile that is built in that context."""
    found = instructions(text)
    return [fault for rule in DOCKERFILE_RULES for fault in rule(found, context)]


Instructions = list[Instruction]


def _known(found: Instructions, _: Path) -> Iterator[str]:
    allowed = {
        *("FROM", "ARG", "ENV", "SHELL", "RUN", "COPY", "ADD", "USER", "WORKDIR", "ENTRYPOINT"),
        *("CMD", "EXPOSE", "VOLUME", "LABEL", "HEALTHCHECK", "STOPSIGNAL"),
    }
    for one in found:
        if one.name not in allowed:
            yield f"{one.name} is no instruction"
    if not found or found[0].name not in ("FROM", "ARG"):
        yield "does not begin with FROM"


def _from(found: Instructions, _: Path) -> Iterator[str]:
    stages = set()
    for one in (one for one in found if one.name == "FROM"):
        image, *rest = one.words()
        if image not in stages and not _PINNED.match(image):
            yield f"DL3006, DL3007: {image} is not pinned to a version"
        if len(rest) == 2:
            stages.add(rest[1])


def _user(found: Instructions, _: Path) -> Iterator[str]:
    users = [one.rest.split(":")[0] for one in found if one.name == "USER"]
    if not users or not users[-1].isdecimal() or users[-1] == "0":
        yield "DL3002: the last USER is root, or has no number"


def _add(found: Instructions, _: Path) -> Iterator[str]:
    for one in found:
        if one.name == "ADD":
            yield f"DL3020: ADD {one.rest}: COPY does, and an address proves nothing"


def _apt(found: Instructions, _: Path) -> Iterator[str]:
    for run in (one.rest for one in found if one.name == "RUN"):
        if re.search(r"\bapt\s", run):
            yield "DL3027: apt is for people; scripts use apt-get"
        if re.search(r"apt-get\s+(dist-)?upgrade", run):
            yield "DL3005: packages are upgraded by a newer base image"
        if "apt-get" not in run:
            continue
        install = re.search(r"apt-get\s+install([^&|;]*)", run)
        if install and not re.search(r"\s(-y|--yes)\s", install[1]):
            yield "DL3014: apt-get install asks"
        if install and "--no-install-recommends" not in install[1]:
            yield "DL3015: apt-get install takes what is only recommended"
        if install and "apt-get update" not in run:
            yield "apt-get installs from lists of another layer"
        if not re.search(r"rm -rf /var/lib/apt/lists/\*\s*$", run):
            yield "DL3009: the lists of apt-get are kept"


def _pip(found: Instructions, _: Path) -> Iterator[str]:
    kept = not any(one.name == "ENV" and "PIP_NO_CACHE_DIR=1" in one.rest for one in found)
    for run in (one.rest for one in found if one.name == "RUN"):
        if (
            kept
            and re.search(r"\bpip\d? .*install|fetch-jars", run)
            and "--no-cache-dir" not in run
        ):
            yield "DL3042: pip keeps its cache"
        if re.search(r"\bpip\d? install", run) and "--require-hashes" not in run:
            yield "DL3013: pip installs what no lock names"


def _shell(found: Instructions, _: Path) -> Iterator[str]:
    careful = any(one.name == "SHELL" and "pipefail" in one.rest for one in found)
    for one in found:
        if one.name == "RUN" and re.search(r"\bsudo\b", one.rest):
            yield "DL3004: sudo"
        if one.name == "RUN" and re.search(r"\bcd\s+/", one.rest):
            yield "DL3003: cd instead of WORKDIR"
        if one.name == "RUN" and re.search(r"(curl|wget)[^|]*\|\s*(ba)?sh", one.rest):
            yield "what an address sends is run"
        if one.name == "RUN" and "|" in one.rest.replace("||", "") and not careful:
            yield "DL4006: a pipe without pipefail"
        if one.name in ("CMD", "ENTRYPOINT") and not one.rest.startswith("["):
            yield f"DL3025: {one.name} is not a list of words"
    for name in ("CMD", "ENTRYPOINT"):
        if sum(one.name == name for one in found) > 1:
            yield f"DL4003, DL4004: several {name}"


def _paths(found: Instructions, context: Path) -> Iterator[str]:
    for one in found:
        if one.name == "WORKDIR" and not one.rest.startswith("/"):
            yield f"DL3000: WORKDIR {one.rest} is relative"
        if one.name != "COPY" or "--from=" in one.rest:
            continue
        *sources, target = one.words()
        if len(sources) > 1 and not target.endswith("/"):
            yield f"DL3021: {target} takes several and does not end with /"
        for source in sources:
            if source == "." or not (context / source).exists():
                yield f"COPY {source}: all there is, or nothing that is there"


def _secrets(found: Instructions, _: Path) -> Iterator[str]:
    for one in (one for one in found if one.name in ("ENV", "ARG")):
        for word in shlex.split(one.rest):
            if _SECRET.search(word.partition("=")[0]):
                yield f"{one.name} {word.partition('=')[0]}: a secret stays in the image"


DOCKERFILE_RULES: tuple[Callable[[Instructions, Path], Iterator[str]], ...] = (
    _known,
    _from,
    _user,
    _add,
    _apt,
    _pip,
    _shell,
    _paths,
    _secrets,
)
