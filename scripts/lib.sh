# Read by the other scripts: where things are, and how what they need is installed once.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
export PATH="$venv/bin:$PATH"
# Tests start hundreds of short processes: without bytecode each would compile all modules again.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$@" >&2; }

# fail WHAT [WHAT TO DO …]
fail() {
    say "error: $1" "${@:2}"
    exit 1
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

# apt_install PACKAGE …: installs the first of the packages that Debian's package manager offers;
# returns non-zero where there is no such manager, or no right to use it.
apt_install() {
    local package sudo=()
    command -v apt-get >/dev/null || return 1
    if [[ $(id -u) != 0 ]]; then
        sudo -n true 2>/dev/null || return 1
        sudo=(sudo -n)
    fi
    export DEBIAN_FRONTEND=noninteractive
    ${sudo[@]+"${sudo[@]}"} apt-get update -qq >&2 || say "apt-get update failed; trying what is known already."
    for package; do
        [[ -n $(apt-cache madison "$package" 2>/dev/null) ]] || continue
        say "Installing $package with apt-get …"
        ${sudo[@]+"${sudo[@]}"} apt-get install -qq --yes --no-install-recommends "$package" >&2
        return
    done
    return 1
}

is_supported_python() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    local python candidates=(python3.13 python3.12 python3.11 python3)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for python in "${candidates[@]}"; do
        if is_supported_python "$python"; then
            command -v "$python"
            return
        fi
    done
    return 1
}

make_venv() {
    local python version
    if is_supported_python "$venv/bin/python"; then # one of another maker may have no pip
        "$venv/bin/python" -m pip --version &>/dev/null || "$venv/bin/python" -m ensurepip >&2
        return
    fi
    python=$(find_python) || fail "${PYTHON:-PATH} gives no Python 3.11, 3.12 or 3.13." \
        "Install one, or name one: PYTHON=/path/to/python3.12 $0"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "python$version-venv" || fail "$python cannot make virtual environments." \
            "Install its venv module (Debian, Ubuntu: apt-get install python$version-venv), then run this again."
    fi
    say "Making ${venv##*/} with Python $version …"
    "$python" -m venv --clear "$venv"
}

# What an installation from this lock depends on, as one line of the stamp file.
stamp_line() {
    printf '%s %s\n' "$1" "$({ printf '%s\n' "$root"; cat "$root/$1" "$root/pyproject.toml"; } | sha256)"
}

# install_from LOCK: makes .venv hold what the lock names and the project itself. Does nothing if it does.
install_from() {
    local lock=$1 stamp=$venv/.installed
    if [[ -x $venv/bin/python ]] && grep -qxF "$(stamp_line "$lock")" "$stamp" 2>/dev/null; then
        return
    fi
    make_venv
    rm -f "$stamp"
    say "Installing from $lock$(grep -q ^pyspark== "$root/$lock" && echo '; Spark alone is a download of 430 MB') …"
    # --use-pep517: an old pip builds PySpark's source distribution only so.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 \
        --require-hashes -r "$root/$lock" || fail "The packages could not be installed." \
        "Without a network, set PIP_INDEX_URL or PIP_FIND_LINKS to where they can be had, then run this again."
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e "$root"
    stamp_line "$lock" >"$stamp"
    # The lock for development holds all that the other one holds.
    if [[ $lock == requirements-dev.lock ]]; then stamp_line requirements.lock >>"$stamp"; fi
    hash -r # this shell may have found another `python` before there was one here
}

# java_home: prints the home of the first Java 17 or 21 among JAVA_HOME, PATH and Debian's folder.
java_home() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java)" /usr/lib/jvm/*/bin/java; do
        [[ -x $java ]] || continue
        "$java" -XshowSettings:properties -version 2>&1 | awk -F ' = ' '
            $1 ~ /java\.home$/ { home = $2 }
            $1 ~ /java\.specification\.version$/ { version = $2 }
            END { if (version != 17 && version != 21) exit 1; print home }' && return
    done
    return 1
}

# jar_folder: prints where jars are kept.
jar_folder() {
    echo "${LINEAGE_BACKFILL_JARS:-$(python -c '
from platformdirs import user_cache_path
print(user_cache_path("lineage-backfill") / "jars")')}"
}

# use_spark: a Java that Spark can use, and the Delta jars.
use_spark() {
    "$root/scripts/install-java"
    JAVA_HOME=$(java_home)
    export JAVA_HOME
    "$root/scripts/fetch-jars"
}

# use_class_archive: the classes of Spark as a JVM maps them into memory; to load them is a third of
# what a start costs. Needs use_spark and requirements-dev.lock.
use_class_archive() {
    local archive=$venv/spark-classes.jsa
    if [[ ! $archive -nt $venv/.installed ]]; then
        say "Writing down the classes of Spark, so that it starts sooner …"
        (cd "$root" && SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=$archive" python -m tests.sessions) &>/dev/null ||
            rm -f "$archive"
    fi
    # Of another Java they are passed over, and nothing is said of that.
    export SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$archive -Xlog:disable -Xlog:all=error:stderr"
}
