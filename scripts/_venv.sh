# Sourced by the scripts beside it: enter the project, make $VENV (.venv) when there is none, install what is asked for.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
VENV=${VENV:-.venv}
PY=$VENV/bin/python
unset PYTHONDONTWRITEBYTECODE # tests start thousands of processes: each would compile the whole library again

ensure_venv() { # $1: the extra to install, or nothing
    if [ ! -x "$PY" ]; then
        python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
            { echo "error: Python 3.11 or newer is needed, this is $(python3 --version)" >&2; exit 2; }
        python3 -m venv "$VENV" >/dev/null 2>&1 ||
            { rm -rf "$VENV"; echo "error: this Python has no venv module; on Debian: apt-get install python3-venv" >&2; exit 2; }
    fi
    local wanted stamp=$VENV/.installed${1:+-$1}
    wanted=$(cksum <pyproject.toml)
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
    [ "${1:-}" = quick ] && [ "$(cat "$VENV/.installed-test" 2>/dev/null)" = "$wanted" ] && return # it has that, too
    echo "installing onnxsurgeon-lite${1:+[$1]} into $VENV ..." >&2
    "$PY" -m pip install --quiet --disable-pip-version-check -e ".${1:+[$1]}" || exit 2
    echo "$wanted" >"$stamp"
}
