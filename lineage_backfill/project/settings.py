"""The project: its file is found, its settings are layered, its declarations are read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.project import reader as declare
from lineage_backfill.project import targets
from lineage_backfill.project.declarations import Declarations, EngineDeclaration, Limits
from lineage_backfill.project.notify import NotifyDeclaration, read_notify
from lineage_backfill.project.references import Reveal, revealed
from lineage_backfill.project.run_rules import Failure, RunRules
from lineage_backfill.project.table import Table
from lineage_backfill.redaction import MASK, redacted, remember, secrets_in_address
from lineage_backfill.typed import near_misses

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
SOURCES = ("lineage.marquez", "lineage.events", "lineage.snapshot", "lineage.source")
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
        if self.value is None or self.value == ():
            return ""
        if self.secret:
            return MASK
        if isinstance(self.value, bool):
            return str(self.value).lower()
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return ", ".join(redacted(str(value)) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSetting:
    """Where lineage is read from: at most one of events, marquez, snapshot and source is given.

    `events` holds absolute paths and globs, `source` is a kind of another package. `timeout` is in
    seconds, for one request.
    """

    events: tuple[str, ...] = ()
    marquez: str | None = None
    snapshot: Path | None = None
    source: str | None = None
    source_settings: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None
    timeout: int = 30
    allow_torn: bool = False  # events: a last line that is cut off is left out
    fold: bool = True  # a Spark application is one job
    cache: bool = True  # what Marquez has told is kept
    ignore_runs: tuple[str, ...] = ()  # whose events are left out
    no_code: bool = False  # what the code declares is left out
    edges_of: str | None = None  # which runs give jobs their edges; None: the last one, and a rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """All that the configuration says, with absolute paths.

    `root` is the project file's folder, or the working directory where there is none. `name` is
    the project's in every checkout, `target` the one that was chosen. `code` is the folder from
    which entrypoints import, `jobs` the modules there whose jobs declare themselves, `outbox` where
    runs put their lineage events, `spark` Spark's own properties (`spark.master`, …), `live_runs`
    what becomes of a backfill while someone else runs the same keys. After `max_failures` failed
    runs a backfill starts no more, nor when it `expires`, counted from when it was to begin.
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
    expires: timedelta | None
    settings: tuple[Setting, ...]
    name: str = ""
    target: str = ""

    def refuse_other_target(self, target: str, what: str) -> None:
        """Raise UsageError where something, such as "the plan was made", is for another target."""
        if target != self.target:
            here = f"target {self.target!r}" if self.target else "no target"
            raise UsageError(
                f"{what} for {f'target {target!r}' if target else 'no target'}, not for {here}",
                hint=f"Pass --target {target}." if target else "Leave out --target.",
            )


def _below(base: Path, path: str) -> Path:
    return base / Path(path).expanduser()


def _globs_below(base: Path, globs: Iterable[str]) -> tuple[str, ...]:
    return tuple(glob if "://" in glob else str(_below(base, glob)) for glob in globs)


def _store_below(base: Path, url: str) -> str:
    if not url.startswith(_SQLITE) or url.startswith(_SQLITE + ":memory:"):
        return url
    return _SQLITE + str(base / url.removeprefix(_SQLITE))


def _store(table: Table, key: str) -> str | None:
    url = table.text(key)
    if url is not None and "://" not in url:
        raise table.error(f"`{key}` is not a database URL", hint=f"As in {_SQLITE}runs.db.")
    return url


def _web(table: Table, key: str) -> str | None:
    url = table.text(key)
    if url is not None and not _is_web(url):
        raise table.error(f"`{key}` is not an http address: {url.rpartition('@')[2]!r}")
    return url and url.rstrip("/")


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # as of a host in square brackets that are not closed
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _headers(table: Table, key: str) -> Mapping[str, str] | None:
    headers = table.mapping(key)
    if not all(isinstance(value, str) for value in headers.values()):
        raise table.error(f"`{key}` must be a table of strings")
    return dict(headers) or None


def _any_settings(table: Table, key: str) -> Mapping[str, Any] | None:
    return dict(table.mapping(key)) or None


def _flag(table: Table, key: str) -> bool | None:
    return table.flag(key, False) if key in table else None


_count: Final = partial(Table.integer, default=None, minimum=1)


def _truth(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text.casefold(), text)


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _paths(text: str) -> list[str]:
    """Split `a:b`, or `https://a b` where one is an address, which holds colons itself."""
    return text.split() if "://" in text else text.split(":")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _pairs(text: str) -> dict[str, str]:
    """Split `Name: value, Other: value`; a value holds no comma."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    """How one setting is read; `default` is TOML, read with the project's root as base."""

    help: str
    read: Callable[[Table, str], Any] = Table.text
    at: Callable[[Path, Any], Any] | None = None  # takes a relative path from its base
    default: Any = None
    secret: bool = False
    refers: bool = False  # may be `env:NAME` or `file:PATH`, as secrets may
    parse: Callable[[str], Any] = str  # of an environment variable's text


#: Settings of earlier versions, each with what to do instead.
REMOVED = {
    "lineage.view": "Remove it: Marquez is read in one way, its event history and its lists.",
}
_SPECS: dict[str, _Spec] = {
    "project.name": _Spec(
        help="name of this project, the same in every checkout; by default that of its folder",
    ),
    "project.namespace": _Spec(help="what a bare dataset or job name means"),
    "project.zone": _Spec(
        help="time zone of calendars without a zone", read=declare.check_zone, default="UTC"
    ),
    "project.code": _Spec(help="folder that entrypoints are imported from", at=_below, default="."),
    "project.jobs": _Spec(
        help="modules, packages and folders of SQL files whose jobs declare themselves",
        read=Table.texts,
        parse=_words,
    ),
    "lineage.marquez": _Spec(
        help="address of a Marquez to read the lineage from", read=_web, refers=True
    ),
    "lineage.events": _Spec(
        help="files, folders, globs and URLs of OpenLineage events",
        read=Table.texts,
        at=_globs_below,
        parse=_paths,
    ),
    "lineage.snapshot": _Spec(help="a saved lineage snapshot", at=_below),
    "lineage.source": _Spec(help="a lineage source of another package"),
    "lineage.source_settings": _Spec(
        help="settings of that source", read=_any_settings, secret=True, parse=_pairs
    ),
    "lineage.outbox": _Spec(
        help="where this project's own runs put their lineage events",
        at=_below,
        default=".lineage-backfill/lineage",
    ),
    "lineage.api_key": _Spec(help="bearer token for Marquez", secret=True),
    "lineage.headers": _Spec(
        help="further HTTP headers for Marquez", read=_headers, secret=True, parse=_pairs
    ),
    "lineage.ca_bundle": _Spec(help="file of certificates to trust", at=_below),
    "lineage.timeout": _Spec(
        help="seconds that one HTTP request may take, with all retries",
        read=_count,
        default=30,
        parse=_number,
    ),
    "lineage.fold": _Spec(
        help="show a Spark application as one job, not its actions as jobs",
        read=_flag,
        default=True,
        parse=_truth,
    ),
    "lineage.cache": _Spec(
        help="cache Marquez's answers for the next command",
        read=_flag,
        default=True,
        parse=_truth,
    ),
    "lineage.ignore_runs": _Spec(
        help="ids of runs whose events are left out", read=Table.texts, parse=_words
    ),
    "lineage.edges_of": _Spec(
        help='runs that give a job its edges: "last run", or those of a span such as "30d"',
        read=declare.edges_of,
    ),
    "store.url": _Spec(
        help="database that keeps backfills, SQLite or PostgreSQL",
        read=_store,
        at=_store_below,
        refers=True,
        default=_SQLITE + ".lineage-backfill/runs.db",
    ),
    "run.live_runs": _Spec(
        help="a run by others on the same keys: wait for it, refuse, or ignore it",
        read=partial(Table.choice, options=get_args(LiveRunsPolicy)),
        default="wait",
    ),
    "run.timeout": _Spec(help="how long one attempt of a run may take, as 2h", read=declare.length),
    "run.retries": _Spec(
        help="how often a run is tried again",
        read=partial(Table.integer, default=None, minimum=0),
        default=2,
        parse=_number,
    ),
    "run.retry_wait": _Spec(
        help="wait before the second attempt; it doubles with each",
        read=declare.length,
        default="1s",
    ),
    "run.retry_on": _Spec(
        help="failures that are tried again: transient, timeout, failure",
        read=partial(Table.choices, options=get_args(Failure)),
        default="transient",
        parse=_words,
    ),
    "run.fail_fast": _Spec(
        help="start no more runs once one has failed", read=_flag, default=False, parse=_truth
    ),
    "run.max_failures": _Spec(
        help="start no more runs once this many have failed", read=_count, parse=_number
    ),
    "run.only_between": _Spec(
        help="hours in which runs may start, as 20:00-06:00", read=declare.window
    ),
    "run.expires": _Spec(
        help="start no run of a backfill later than this after its start", read=declare.length
    ),
    "run.notify_hosts": _Spec(
        help="the hosts that webhooks of [[notify]] may go to", read=Table.texts, parse=_words
    ),
    "limits.max_runs": _Spec(
        help="a plan with more runs is refused",
        read=_count,
        default=Limits().max_runs,
        parse=_number,
    ),
    "limits.confirm_above": _Spec(
        help="above this many runs, the count must be typed",
        read=_count,
        default=Limits().confirm_above,
        parse=_number,
    ),
    "limits.max_parallel": _Spec(
        help="runs at once", read=_count, default=Limits().max_parallel, parse=_number
    ),
}
#: The settings' tables, each with its keys.
_TABLES: dict[str, list[str]] = {}
for _name in _SPECS:
    _TABLES.setdefault(_name.partition(".")[0], []).append(_name.partition(".")[2])


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
            help=spec.help,
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
    user = Table({}, str(user_file)) if data is None else _open(user_file, data)
    reveal = partial(revealed, environ=environ, read=read)
    settings = _layered(
        _settings(Table(_nested(_defaults(target)), "default"), root, reveal),
        _of_senders(environ),
        _settings(user, user_file.parent, reveal),
        _settings(own, root, reveal),
        _environment(environ, start, reveal),
        _settings(Table(_nested(given), "command line"), start, reveal),
    )
    value = {name: setting.value for name, setting in settings.items()}
    spark = declare.spark_properties(user, "spark") | declare.spark_properties(own, "spark")
    local = EngineDeclaration(name="local", kind="local")
    below = Declarations(engines=(local, *_engines(user).values()), pools=_pools(user))
    known: declare.Known = {}
    declarations = replace(
        _declared(own, root, below, known),
        namespace=value["project.namespace"],
        zone=value["project.zone"],
        limits=Limits(**{key: value[f"limits.{key}"] for key in _TABLES["limits"]}),
        rules=RunRules(**{one.name: value[f"run.{one.name}"] for one in fields(RunRules)}),
    )
    notify_hosts = value["run.notify_hosts"] or ()
    notify = read_notify(own.tables("notify"), notify_hosts)
    user.done()
    own.done()
    for other in others:
        _check(other, root, notify_hosts)
        _declared(other, root, below, known)
        other.done()
    return Project(
        root=root,
        name=value["project.name"] or root.name,
        target=target,
        file=file,
        declarations=declarations,
        lineage=LineageSetting(
            events=value["lineage.events"] or (),
            marquez=value["lineage.marquez"],
            snapshot=value["lineage.snapshot"],
            source=value["lineage.source"],
            source_settings=value["lineage.source_settings"] or {},
            api_key=value["lineage.api_key"],
            headers=value["lineage.headers"] or {},
            ca_bundle=value["lineage.ca_bundle"],
            timeout=value["lineage.timeout"],
            fold=value["lineage.fold"],
            cache=value["lineage.cache"],
            ignore_runs=value["lineage.ignore_runs"] or (),
            edges_of=value["lineage.edges_of"],
        ),
        store_url=value["store.url"],
        spark=spark,
        code=value["project.code"],
        jobs=value["project.jobs"] or (),
        outbox=value["lineage.outbox"],
        live_runs=value["run.live_runs"],
        notify=notify,
        notify_hosts=notify_hosts,
        max_failures=1 if value["run.fail_fast"] else value["run.max_failures"],
        expires=value["run.expires"],
        settings=tuple(settings.values()),
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


def _open(file: Path, data: bytes | None) -> Table:
    if data is None:
        raise unreadable(file, "No such file or directory")
    return Table(_document(file, data) or {}, str(file))


def _own(file: Path | None, read: ReadFile, target: str) -> tuple[Table, list[Table]]:
    """Return the project file as it holds for a target, and for each other one."""
    document: Mapping[str, Any] = {}
    if file is not None:
        data = read(file)
        if data is None:
            raise unreadable(file, "No such file or directory")
        document = _document(file, data) or {}
    place = str(file) if file else "no project file"
    found = Table(targets.chosen(document, target, place), place)
    others = [
        Table(targets.chosen(document, name, place), f"{place} [target.{name}]")
        for name in sorted(document.get("target", {}))
        if name != target
    ]
    return found, others


def _check(other: Table, root: Path, hosts: Sequence[str]) -> None:
    """Refuse the mistakes in a target's settings and hooks; its secrets stay unread."""
    settings = _settings(other, root, lambda *_, **__: None)
    own_hosts = settings.get("run.notify_hosts")
    declare.spark_properties(other, "spark")
    read_notify(other.tables("notify"), own_hosts.value if own_hosts else hosts)


def _settings(document: Table, base: Path, reveal: Reveal) -> dict[str, Setting]:
    """Read one layer's settings; relative paths are relative to `base`."""
    found = {}
    for table_name, keys in _TABLES.items():
        place = f"{document.place} [{table_name}]"
        values = {
            key: reveal(value, place=f"{place} `{key}`", base=base)
            if _refers(table_name, key)
            else value
            for key, value in document.mapping(table_name).items()
        }
        for key in values:
            if advice := REMOVED.get(f"{table_name}.{key}"):
                raise document.error(f"[{table_name}] has `{key}`, which was removed", hint=advice)
        table = Table(values, place)
        _remember(values)
        for key in keys:
            name = f"{table_name}.{key}"
            spec = _SPECS[name]
            value = spec.read(table, key)
            if value is not None:
                found[name] = Setting(
                    name=name,
                    value=spec.at(base, value) if spec.at else value,
                    origin=document.place,
                    secret=spec.secret,
                )
        table.done()
    if "run.max_failures" in found and "run.fail_fast" in found and found["run.fail_fast"].value:
        raise document.error(
            "[run] has `fail_fast` and `max_failures`", hint="Keep one of them; the first means 1."
        )
    sources = [name for name in SOURCES if name in found]
    if len(sources) > 1:
        raise document.error(
            f"[lineage] has `{'` and `'.join(name.partition('.')[2] for name in sources)}`",
            hint="Keep one of them.",
        )
    return found


def _remember(values: Mapping[str, Any]) -> None:
    """Hide the secrets in addresses, also in the error about one that is refused."""
    for key in _ADDRESSES & values.keys():
        texts = values[key] if isinstance(values[key], list | tuple) else [values[key]]
        for one in texts:
            remember(secrets_in_address(str(one)))


def _refers(table: str, key: str) -> bool:
    spec = _SPECS.get(f"{table}.{key}")
    return spec is not None and (spec.secret or spec.refers)


def _layered(*layers: dict[str, Setting]) -> dict[str, Setting]:
    """Put the layers together, the last on top; one source of lineage hides those below it."""
    settings = {name: Setting(name=name, value=None, origin="default") for name in _SPECS}
    for layer in layers:
        if any(name in layer for name in SOURCES):
            settings |= {name: replace(settings[name], value=None) for name in SOURCES}
        settings |= layer
    return settings


def _defaults(target: str) -> dict[str, object]:
    values = {name: spec.default for name, spec in _SPECS.items()}
    if target:  # what is kept of one target says nothing of the tables of another
        folder = targets.folder(target)
        for name in ("store.url", "lineage.outbox"):
            values[name] = values[name].replace(targets.folder(""), folder)
    return values


def _environment(environ: Mapping[str, str], base: Path, reveal: Reveal) -> dict[str, Setting]:
    variables = {_variable(name): name for name in _SPECS}
    for variable in environ:
        is_ours = variable.startswith(ENV_PREFIX) and not _NO_SETTING.fullmatch(variable)
        if is_ours and variable not in variables:
            gone = {_variable(name): advice for name, advice in REMOVED.items()}
            raise ConfigError(
                f"environment: unknown setting {variable}",
                hint=gone.get(variable) or near_misses(variable, variables),
            )
    _remember({name.partition(".")[2]: environ.get(one, "") for one, name in variables.items()})
    values = {
        name: _SPECS[name].parse(environ[variable])
        for variable, name in variables.items()
        if environ.get(variable)
    }
    settings = _settings(Table(_nested(values), "environment"), base, reveal)
    return {name: replace(one, origin=_variable(name)) for name, one in settings.items()}


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
    document: Table, root: Path, below: Declarations, known: declare.Known
) -> Declarations:
    """Return the declarations of one file, over the engines and pools of the file below."""
    engines = {one.name: one for one in below.engines} | _engines(document)
    pools = {**below.pools, **_pools(document)}
    return Declarations(
        datasets=declare.datasets(document.tables("dataset"), root, known),
        jobs=declare.jobs(document.tables("job"), engines=engines, pools=pools, known=known),
        pools=pools,
        engines=tuple(engines[name] for name in sorted(engines)),
    )


def _engines(document: Table) -> dict[str, EngineDeclaration]:
    engines = document.table("engines")
    tables = {
        name: Table(engines.mapping(name), f"{engines.place} {name}") for name in engines.names()
    }
    return {name: declare.engine(name, table) for name, table in tables.items()}


def _pools(document: Table) -> dict[str, int]:
    pools = document.table("pools")
    return {name: pools.integer(name, 1, minimum=1) for name in pools.names()}
