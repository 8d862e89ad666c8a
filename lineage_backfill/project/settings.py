"""The project: its file is found, its settings are layered, its declarations are read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.project import reader as declare
from lineage_backfill.project import targets
from lineage_backfill.project.access import Access
from lineage_backfill.project.boundaries import with_lists
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    EngineDeclaration,
    JobDeclaration,
    Limits,
)
from lineage_backfill.project.forms import (
    TEXT,
    Count,
    Positive,
    SparkProperties,
    Texts,
    Zone,
)
from lineage_backfill.project.notify import NotifyDeclaration, read_notify
from lineage_backfill.project.references import Reveal, revealed
from lineage_backfill.project.run_rules import (
    EdgesOf,
    Failure,
    Hours,
    Length,
    RunRules,
    Wait,
    length_text,
)
from lineage_backfill.redaction import MASK, redacted, remember, secrets_in_address
from lineage_backfill.typed import (
    ONE_OR_MORE,
    Form,
    Member,
    Misfit,
    Text,
    member,
    members,
    near_misses,
    parsed,
    read,
    read_value,
    stated,
    text,
)

#: Returns the bytes of a file, None where there is none; raises ConfigError.
ReadFile = Callable[[Path], bytes | None]
FILE_NAME = "lineage-backfill.toml"
ENV_PREFIX = "LINEAGE_BACKFILL_"
#: Variables that are not settings: of scripts and tests, and what Kubernetes sets for a service of
#: that name (https://kubernetes.io/docs/concepts/services-networking/service/).
_NO_SETTING = re.compile(
    rf"{ENV_PREFIX}(JARS|TARGET|TEST_\w+|(\w+_)?SERVICE_(HOST|PORT)(_\w+)?|(\w+_)?PORT(_\d+_\w+)?)"
)
#: Settings that hold addresses, perhaps with a password.
_ADDRESSES = {"marquez", "events", "snapshot", "url"}
#: Settings of `[lineage]` that exclude each other: the first layer that names one decides.
SOURCES = (
    *("lineage.marquez", "lineage.events", "lineage.snapshot", "lineage.source"),
    "lineage.sources",
)
#: Our own kinds of source in `sources`: each setting, and its name in `[lineage]`; the first one is
#: required.
_KINDS: Mapping[str, Mapping[str, str]] = {
    "marquez": {
        "url": "marquez",
        **{one: one for one in ("api_key", "headers", "ca_bundle", "timeout", "cache")},
    },
    "events": {"paths": "events"},
    "snapshot": {"path": "snapshot"},
}
#: Variables that hold the address to which lineage is sent, by priority: read where no project
#: file, no variable of ours and no option names a source.
SENDERS = ("OPENLINEAGE_URL", "MARQUEZ_URL")
LiveRunsPolicy = Literal["wait", "refuse", "ignore"]
_SQLITE = "sqlite:///"
_DEEPEST = 50  # tables and arrays within each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting's value and where it came from, for `config show --sources`."""

    name: str
    value: Any
    origin: str
    secret: bool = False

    @property
    def shown(self) -> str:
        """The value as text that may be printed: secrets and passwords in URLs are masked."""
        if self.value in (None, (), {}):
            return ""
        if self.secret:
            return MASK
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, timedelta):
            return length_text(self.value)
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return ", ".join(redacted(str(value)) for value in values)


def _store(value: Any) -> str:
    if "://" not in (url := text(value)):
        raise Misfit("is not a database URL", hint=f"As in {_SQLITE}runs.db.")
    return url


def _web(value: Any) -> str:
    url = text(value)
    try:
        parts = urlsplit(url)
    except ValueError:  # as of a host in square brackets that are not closed
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise Misfit("is not an http address: {value}", url.rpartition("@")[2])
    return url.rstrip("/")


def _below(base: Path, path: Path) -> Path:
    return base / path.expanduser()


def _globs_below(base: Path, globs: Iterable[str]) -> tuple[str, ...]:
    return tuple(glob if "://" in glob else str(_below(base, Path(glob))) for glob in globs)


def _source(value: Any) -> LineageSetting:
    """Return one of several sources: the settings of a table with `source`."""
    if not isinstance(value, Mapping) or not isinstance(value.get("source"), str):
        hint = 'Write { source = "events", paths = ["lineage/*.ndjson"] }.'
        raise Misfit("must be a table with its kind as `source`", hint=hint)
    kind = value["source"]
    given = {name: one for name, one in value.items() if name != "source"}
    known = _KINDS.get(kind)
    if known is None:
        return LineageSetting(source=kind, source_settings=given)
    if unknown := sorted(given.keys() - known.keys()):
        raise Misfit(f"({kind}) has no setting `{unknown[0]}`", hint=near_misses(unknown[0], known))
    needed = next(iter(known))
    if not given.get(needed):
        raise Misfit(f"({kind}) needs `{needed}`")
    try:
        return read(LineageSetting, {known[name]: one for name, one in given.items()}, kind)
    except ConfigError as error:
        raise Misfit(f"is wrong: {error.message}", hint=error.hint) from error


def _sources_below(base: Path, parts: Iterable[LineageSetting]) -> tuple[LineageSetting, ...]:
    return tuple(
        replace(
            one,
            events=_globs_below(base, one.events),
            snapshot=one.snapshot and _below(base, one.snapshot),
            ca_bundle=one.ca_bundle and _below(base, one.ca_bundle),
        )
        for one in parts
    )


def _store_below(base: Path, url: str) -> str:
    if not url.startswith(_SQLITE) or url.startswith(_SQLITE + ":memory:"):
        return url
    return _SQLITE + str(base / url.removeprefix(_SQLITE))


def _paths(given: str) -> list[str]:
    """Split `a:b`, or `https://a b` where one is an address, which holds colons itself."""
    return given.split() if "://" in given else given.split(":")


_File = Annotated[Path, Form(lambda value: Path(text(value)), TEXT)]
_Address = Annotated[str, Form(_web, TEXT)]
_Store = Annotated[str, Form(_store, TEXT)]
_Source = Annotated[Any, Form(_source, {"type": "object", "required": ["source"]})]

# Of each setting, `at` takes a relative path from its base, `split` takes the text of an
# environment variable apart; one that is `secret` or `refers` may be `env:NAME` or `file:PATH`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSetting:
    """The table [project]."""

    name: Text | None = member(
        None, "name of this project, the same in every checkout; by default that of its folder"
    )
    namespace: Text | None = member(None, "what a bare dataset or job name means")
    zone: Zone = member("UTC", "time zone of calendars without a zone")
    code: _File = member(Path(), "folder that entrypoints are imported from", at=_below)
    jobs: Texts = member(
        (), "modules, packages and folders of SQL files whose jobs declare themselves"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSetting:
    """Where lineage is read from: at most one of events, marquez, snapshot, source and sources.

    `events` holds absolute paths and globs, `source` is the kind of a source by its name. Each of
    `sources` is one of these; together they are one lineage. `timeout` is in seconds, for one
    request. With `allow_torn` a last line of events that is cut off is left out,
    with `no_code` what the code declares.
    """

    marquez: _Address | None = member(
        None, "address of a Marquez to read the lineage from", refers=True
    )
    events: Texts = member(
        (), "files, folders, globs and URLs of OpenLineage events", at=_globs_below, split=_paths
    )
    snapshot: _File | None = member(None, "a saved lineage snapshot", at=_below)
    source: Text | None = member(
        None, "`airflow`, `dbt`, `unity`, a Python file, or a lineage source of another package"
    )
    source_settings: Mapping[str, Any] = member({}, "settings of that source", secret=True)
    sources: tuple[_Source, ...] = member(
        (),
        "several sources that are one lineage: tables with `source` (`marquez`, `events`,"
        " `snapshot`, `airflow`, `dbt`, `unity` …) and its settings",
        at=_sources_below,
        secret=True,
    )
    outbox: _File = member(
        Path(".lineage-backfill/lineage"),
        "where this project's own runs put their lineage events",
        at=_below,
    )
    api_key: Text | None = member(None, "bearer token for Marquez", secret=True)
    headers: Mapping[str, str] = member({}, "further HTTP headers for Marquez", secret=True)
    ca_bundle: _File | None = member(None, "file of certificates to trust", at=_below)
    timeout: Positive = member(30, "seconds that one HTTP request may take, with all retries")
    fold: bool = member(True, "show a Spark application as one job, not its actions as jobs")
    cache: bool = member(True, "cache Marquez's answers for the next command")
    ignore_runs: Texts = member((), "ids of runs whose events are left out")
    edges_of: EdgesOf | None = member(
        None, 'runs that give a job its edges: "last run", or those of a span such as "30d"'
    )
    allow_torn: bool = member(False, hidden=True)
    no_code: bool = member(False, hidden=True)

    @property
    def parts(self) -> tuple[LineageSetting, ...]:
        """The settings of each source; none if no source is named."""
        shared = {name: getattr(self, name) for name in ("allow_torn", "ignore_runs")}
        if self.sources:
            return tuple(replace(one, **shared) for one in self.sources)
        return (self,) if self.kind else ()

    @property
    def address(self) -> str | None:
        """The Marquez to which runs send their lineage, None if no source is one."""
        return next((one.marquez for one in self.parts if one.marquez), None)

    @property
    def kind(self) -> str:
        """The kind of a single source; empty if there is none."""
        named = [name for name in ("marquez", "events", "snapshot") if getattr(self, name)]
        return named[0] if named else self.source or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSetting:
    """The table [store]."""

    url: _Store = member(
        _SQLITE + ".lineage-backfill/runs.db",
        "database that keeps backfills, SQLite or PostgreSQL",
        at=_store_below,
        refers=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetting:
    """The table [run]."""

    live_runs: LiveRunsPolicy = member(
        "wait", "a run by others on the same keys: wait for it, refuse, or ignore it"
    )
    timeout: Length | None = member(None, "how long one attempt of a run may take, as 2h")
    retries: Count = member(2, "how often a run is tried again")
    retry_wait: Wait = member(
        timedelta(seconds=1), "wait before the second attempt; it doubles with each"
    )
    retry_on: Annotated[tuple[Failure, ...], ONE_OR_MORE] = member(
        ("transient",), "failures that are tried again: transient, timeout, failure"
    )
    fail_fast: bool = member(False, "start no more runs once one has failed")
    max_failures: Positive | None = member(None, "start no more runs once this many have failed")
    only_between: Hours | None = member(None, "hours in which runs may start, as 20:00-06:00")
    notify_hosts: Texts = member((), "the hosts that webhooks of [[notify]] may go to")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFile:
    """All tables of a project file; its targets hold the same ones."""

    project: ProjectSetting | None = None
    lineage: LineageSetting | None = None
    store: StoreSetting | None = None
    run: RunSetting | None = None
    limits: Limits | None = None
    spark: SparkProperties = member({})
    engines: Mapping[str, Mapping[str, Any]] = member({})
    pools: Mapping[str, Positive] = member({})
    dataset: tuple[DatasetDeclaration, ...] = ()
    job: tuple[JobDeclaration, ...] = ()
    notify: tuple[NotifyDeclaration, ...] = ()
    access: Access | None = None
    target: Mapping[str, Mapping[str, Any]] = member({})


_TABLES: dict[str, Any] = {
    "project": ProjectSetting,
    "lineage": LineageSetting,
    "store": StoreSetting,
    "run": RunSetting,
    "limits": Limits,
}
#: The tables of a user's own file, which holds no project.
_OF_USERS = (*_TABLES, "spark", "engines", "pools")
_SPECS: dict[str, Member] = {
    f"{table}.{one.key}": one for table, kind in _TABLES.items() for one in members(kind)
}


class _Document(NamedTuple):
    """A file of settings and declarations, as TOML has it."""

    values: Mapping[str, Any]
    place: str

    def table(self, name: str) -> Mapping[str, Any]:
        """Return one of its tables; an absent one is empty."""
        found: Mapping[str, Any] = read_value(
            Mapping[str, Any], self.values.get(name, {}), name, self.place
        )
        return found

    def refuse_others(self, known: Iterable[str]) -> None:
        """Raise ConfigError for a table that is not known."""
        for name in self.values:
            if name not in known:
                raise ConfigError(
                    f"{self.place}: unknown key `{name}`", hint=near_misses(name, known)
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """All that the configuration says, with absolute paths.

    `root` is the project file's folder, or the working directory where there is none. `name` is
    the project's in every checkout, `target` the one that was chosen. `code` is the folder from
    which entrypoints import, `jobs` the modules there whose jobs declare themselves, `outbox` where
    runs put their lineage events, `spark` Spark's own properties (`spark.master`, …), `live_runs`
    what becomes of a backfill while someone else runs the same keys. After `max_failures` failed
    runs a backfill starts no more.
    """

    root: Path
    file: Path | None
    declarations: Declarations
    lineage: LineageSetting
    store_url: str
    spark: Mapping[str, str]
    code: Path
    jobs: tuple[str, ...]
    outbox: Path
    live_runs: LiveRunsPolicy
    notify: tuple[NotifyDeclaration, ...]
    notify_hosts: tuple[str, ...]
    max_failures: int | None
    settings: tuple[Setting, ...]
    name: str = ""
    target: str = ""
    access: Access | None = None

    def refuse_other_target(self, target: str, what: str) -> None:
        """Raise UsageError where something, such as "the plan was made", is for another target."""
        if target != self.target:
            here = f"target {self.target!r}" if self.target else "no target"
            raise UsageError(
                f"{what} for {f'target {target!r}' if target else 'no target'}, not for {here}",
                hint=f"Pass --target {target}." if target else "Leave out --target.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSetting:
    """One setting that there is: its name, its environment variable, its default and its use."""

    name: str
    variable: str
    default: str
    help: str


def known_settings() -> tuple[KnownSetting, ...]:
    """Return all settings that have a value of their own, in the order of the project file."""
    return tuple(
        KnownSetting(
            name=name,
            variable=_variable(name),
            default=Setting(name=name, value=spec.default, origin="default").shown,
            help=str(spec.notes["help"]),
        )
        for name, spec in _SPECS.items()
    )


def find_file(start: Path, read: ReadFile) -> Path | None:
    """Return the project file of `start`: in it or the nearest folder above, else None.

    A `pyproject.toml` with `[tool.lineage-backfill]` is a project file too.
    """
    for folder in (start, *start.parents):
        for file in (folder / FILE_NAME, folder / "pyproject.toml"):
            data = read(file)
            if data is not None and (file.name == FILE_NAME or _document(file, data) is not None):
                return file
    return None


def read_project(
    start: Path,
    read: ReadFile,
    *,
    environ: Mapping[str, str],
    user_file: Path,
    file: Path | None = None,
    search: bool = True,
    flags: Mapping[str, object] | None = None,
) -> Project:
    """Return the project that the folder `start`, an absolute path, belongs to.

    `file` names the project file instead of having it searched for; without `search` there is
    none. `flags` maps setting names such as "lineage.events" to values given on the command line;
    None means not given; "target" names the [target.…] that overlays the file, in place of a
    variable. Raises ConfigError or DeclarationError, naming file, table and key.
    """
    if file is not None:
        file = start / file.expanduser()
    elif search:
        file = find_file(start, read)
    root = file.parent if file else start

    given = {name: value for name, value in (flags or {}).items() if value is not None}
    target = str(given.pop("target", environ.get(targets.VARIABLE, "")))
    own, others = _own(file, read, target)
    data = read(user_file)
    user = _Document({}, str(user_file)) if data is None else _open(user_file, data)
    user.refuse_others(_OF_USERS)
    reveal = partial(revealed, environ=environ, read=read)
    settings = _layered(
        _defaults(target, root),
        _of_senders(environ),
        _settings(user, user_file.parent, reveal),
        _settings(own, root, reveal),
        _environment(environ, start, reveal),
        _settings(_Document(_nested(given), "command line"), start, reveal),
    )
    value = {name: setting.value for name, setting in settings.items()}
    spark = _spark(user) | _spark(own)
    local = EngineDeclaration(name="local", kind="local")
    below = Declarations(engines=(local, *_engines(user).values()), pools=_pools(user))
    known: declare.Known = {}
    declarations = replace(
        _declared(own, root, below, known),
        namespace=value["project.namespace"],
        zone=value["project.zone"],
        limits=Limits(**_of_table("limits", value)),
        rules=RunRules(**{one.name: value[f"run.{one.name}"] for one in fields(RunRules)}),
    )
    notify_hosts = value["run.notify_hosts"]
    notify = read_notify(own.values.get("notify"), own.place, notify_hosts)
    for other in others:
        _check(other, root, notify_hosts)
        _declared(other, root, below, known)
    return Project(
        root=root,
        name=value["project.name"] or root.name,
        target=target,
        file=file,
        declarations=declarations,
        lineage=LineageSetting(**_of_table("lineage", value)),
        store_url=value["store.url"],
        spark=spark,
        code=value["project.code"],
        jobs=value["project.jobs"],
        outbox=value["lineage.outbox"],
        live_runs=value["run.live_runs"],
        notify=notify,
        notify_hosts=notify_hosts,
        max_failures=1 if value["run.fail_fast"] else value["run.max_failures"],
        settings=tuple(settings.values()),
        access=_access(own),
    )


def unreadable(file: Path, why: str) -> ConfigError:
    """Return the error that a project file cannot be read."""
    return ConfigError(f"{file}: cannot be read: {why}", hint="Name another file with --config.")


def _document(file: Path, data: bytes) -> dict[str, Any] | None:
    """Return the file's settings, None for a pyproject.toml that has none of ours."""
    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    if file.name == "pyproject.toml":
        tools = document.get("tool")
        ours = tools.get("lineage-backfill") if isinstance(tools, dict) else None
        if not isinstance(ours, dict):
            return None
        document = ours
    level: list[Any] = [document]
    for _ in range(_DEEPEST):  # keys with dots nest deeper than the parser itself can follow
        level = [inner for one in level for inner in _values(one)]
    if level:
        raise ConfigError(f"{file}: nested more than {_DEEPEST} levels deep")
    return document


def _values(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _open(file: Path, data: bytes | None) -> _Document:
    if data is None:
        raise unreadable(file, "No such file or directory")
    return _Document(_document(file, data) or {}, str(file))


#: The tables of a project file that may have calendars.
_WITH_LISTS: Final = ("dataset", "job", "target")


def _own(file: Path | None, read: ReadFile, target: str) -> tuple[_Document, list[_Document]]:
    """Return the project file as it holds for a target, and for each other one."""
    document, place = _Document({}, "no project file")
    if file is not None:
        document, place = _open(file, read(file))
        with_lists({name: document.get(name) for name in _WITH_LISTS}, file.parent, read)
    found = _Document(targets.chosen(document, target, place), place)
    others = [
        _Document(targets.chosen(document, name, place), f"{place} [target.{name}]")
        for name in sorted(document.get("target", {}))
        if name != target
    ]
    for one in (found, *others):
        one.refuse_others([member.key for member in members(ProjectFile)])
    return found, others


def _check(other: _Document, root: Path, hosts: Sequence[str]) -> None:
    """Refuse the mistakes in a target's settings and hooks; its secrets stay unread."""
    settings = _settings(other, root, lambda *_, **__: None)
    own_hosts = settings.get("run.notify_hosts")
    _spark(other)
    _access(other)
    read_notify(other.values.get("notify"), other.place, own_hosts.value if own_hosts else hosts)


def _settings(document: _Document, base: Path, reveal: Reveal) -> dict[str, Setting]:
    """Read one layer's settings; relative paths are relative to `base`."""
    found = {}
    for table, kind in _TABLES.items():
        place = f"{document.place} [{table}]"
        values = {
            key: reveal(value, place=f"{place} `{key}`", base=base)
            if _refers(table, key)
            else value
            for key, value in document.table(table).items()
        }
        _remember(values)
        for key, value in stated(kind, values, place).items():
            found[f"{table}.{key}"] = _setting(f"{table}.{key}", value, document.place, base)
    if "run.max_failures" in found and "run.fail_fast" in found and found["run.fail_fast"].value:
        raise ConfigError(
            f"{document.place}: [run] has `fail_fast` and `max_failures`",
            hint="Keep one of them; the first means 1.",
        )
    sources = [name for name in SOURCES if name in found]
    if len(sources) > 1:
        names = "` and `".join(name.partition(".")[2] for name in sources)
        raise ConfigError(f"{document.place}: [lineage] has `{names}`", hint="Keep one of them.")
    return found


def _setting(name: str, value: Any, origin: str, base: Path) -> Setting:
    notes = _SPECS[name].notes
    at = notes.get("at")
    found = value if at is None or value is None else at(base, value)
    return Setting(name=name, value=found, origin=origin, secret=bool(notes.get("secret")))


def _of_table(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table's settings, by the names of its type."""
    return {
        spec.name: values[name] for name, spec in _SPECS.items() if name.startswith(f"{table}.")
    }


def _remember(values: Mapping[str, Any]) -> None:
    """Hide the secrets in addresses, also in the error about one that is refused."""
    for key in _ADDRESSES & values.keys():
        texts = values[key] if isinstance(values[key], list | tuple) else [values[key]]
        for one in texts:
            remember(secrets_in_address(str(one)))


def _refers(table: str, key: str) -> bool:
    spec = _SPECS.get(f"{table}.{key}")
    return spec is not None and bool(spec.notes.get("secret") or spec.notes.get("refers"))


def _layered(*layers: dict[str, Setting]) -> dict[str, Setting]:
    """Put the layers together, the last on top; one source of lineage hides those below it."""
    settings: dict[str, Setting] = {}
    defaults = layers[0]
    for layer in layers:
        if any(name in layer for name in SOURCES):
            settings |= {name: replace(defaults[name], origin="default") for name in SOURCES}
        settings |= layer
    return settings


def _defaults(target: str, root: Path) -> dict[str, Setting]:
    found = {}
    for name, spec in _SPECS.items():
        value = spec.default
        if target and name in ("store.url", "lineage.outbox"):
            # What is kept of one target says nothing of the tables of another.
            value = type(value)(str(value).replace(targets.folder(""), targets.folder(target)))
        found[name] = _setting(name, value, "default", root)
    return found


def _environment(environ: Mapping[str, str], base: Path, reveal: Reveal) -> dict[str, Setting]:
    variables = {_variable(name): name for name in _SPECS}
    for variable in environ:
        is_ours = variable.startswith(ENV_PREFIX) and not _NO_SETTING.fullmatch(variable)
        if is_ours and variable not in variables:
            raise ConfigError(
                f"environment: unknown setting {variable}",
                hint=near_misses(variable, variables),
            )
    _remember({name.partition(".")[2]: environ.get(one, "") for one, name in variables.items()})
    values = {
        name: _from_text(_SPECS[name], environ[variable])
        for variable, name in variables.items()
        if environ.get(variable)
    }
    settings = _settings(_Document(_nested(values), "environment"), base, reveal)
    return {name: replace(one, origin=_variable(name)) for name, one in settings.items()}


def _from_text(setting: Member, given: str) -> Any:
    """Return the value that the text of an environment variable stands for."""
    kind, split = setting.annotation, setting.notes.get("split")
    while get_origin(kind) is Annotated or type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if split is not None:
        return split(given)
    if get_origin(kind) is Mapping:  # `Name: value, Other: value`; a value holds no comma
        pairs = (pair.partition(":") for pair in given.split(","))
        return {name.strip(): value.strip() for name, _, value in pairs}
    if get_origin(kind) is tuple:
        return [word.strip() for word in given.split(",")]
    return parsed(kind, given)


def _of_senders(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Return the address to which lineage is sent, where it is an HTTP address."""
    name = "lineage.marquez"
    for variable in SENDERS:
        address = environ.get(variable, "")
        if address.startswith(("http://", "https://")):
            return {name: Setting(name=name, value=address, origin=variable)}
    return {}


def variables(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that sets these settings; a source of lineage takes out the others.

    >>> variables({"lineage.marquez": "http://m"}, {"LINEAGE_BACKFILL_LINEAGE_EVENTS": "e"})
    {'LINEAGE_BACKFILL_LINEAGE_MARQUEZ': 'http://m'}
    """
    others = [_variable(name) for name in SOURCES] if settings.keys() & set(SOURCES) else []
    kept = {name: value for name, value in environ.items() if name not in others}
    return kept | {_variable(name): value for name, value in settings.items()}


def _variable(name: str) -> str:
    return ENV_PREFIX + name.replace(".", "_").upper()


def _nested(values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return `{"run.timeout": x}` as TOML would give it, `{"run": {"timeout": x}}`."""
    document: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        if value is not None:
            table, _, key = name.partition(".")
            document.setdefault(table, {})[key] = value
    return document


def _declared(
    document: _Document, root: Path, below: Declarations, known: declare.Known
) -> Declarations:
    """Return the declarations of one file, over the engines and pools of the file below."""
    values, place = document
    engines = {one.name: one for one in below.engines} | _engines(document)
    pools = {**below.pools, **_pools(document)}
    return Declarations(
        datasets=declare.datasets(values.get("dataset"), place, root, known),
        jobs=declare.jobs(values.get("job"), place, engines=engines, pools=pools, known=known),
        pools=pools,
        engines=tuple(engines[name] for name in sorted(engines)),
    )


def _engines(document: _Document) -> dict[str, EngineDeclaration]:
    tables = read_value(
        Mapping[str, Mapping[str, Any]], document.table("engines"), "engines", document.place
    )
    return {
        name: declare.engine(name, values, f"{document.place} [engines.{name}]")
        for name, values in tables.items()
    }


def _pools(document: _Document) -> dict[str, int]:
    found: dict[str, int] = read_value(
        Mapping[str, Positive], document.table("pools"), "pools", document.place
    )
    return found


def _spark(document: _Document) -> dict[str, str]:
    found: dict[str, str] = read_value(
        SparkProperties, document.table("spark"), "spark", document.place
    )
    return found


def _access(document: _Document) -> Access | None:
    """Return the table [access], None where there is none: then only this machine has access."""
    place = f"{document.place} [access]"
    return read(Access, document.table("access"), place) if "access" in document.values else None
