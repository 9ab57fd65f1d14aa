# Sourced by the scripts beside it: makes the virtual environment, once, with what constraints.txt pins.
#
# ROOFLINE_VENV chooses another place for it than .venv; PYTHON another interpreter.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${ROOFLINE_VENV:-$root/.venv}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "roofline needs Python 3.11 or newer, and found none; install it, or name it: PYTHON=/path/to/python3 $0" >&2
  return 2
}

# make_environment FOLDER: an empty virtual environment.
make_environment() {
  local python
  python=$(find_python)
  "$python" -m venv --clear "$1" >&2 || {
    echo "making the virtual environment failed; on Debian and Ubuntu: apt install python3-venv" >&2
    return 1
  }
}

# install_pinned FOLDER REQUIREMENT…: installs into an environment, at the versions of constraints.txt.
install_pinned() {
  # pip would compile one file after the other.
  local pip=("$1/bin/python" -m pip install --quiet --no-compile --constraint "$root/constraints.txt")
  # torch first and alone: what depends on it must find it, and not choose another build.
  "${pip[@]}" torch >&2
  "${pip[@]}" "${@:2}" >&2
}

# ensure_environment EXTRA: installs the package (with [EXTRA] where it is not empty), unless this was
# done before with the same pyproject.toml and constraints.txt.
ensure_environment() {
  local extra=${1:-} stamp="$venv/.installed${1:+-$1}"
  if [ -x "$venv/bin/python" ] && cat "$root/pyproject.toml" "$root/constraints.txt" | cmp -s - "$stamp"; then
    return
  fi
  echo "Setting up $venv, once: torch and its friends take a few minutes to download …" >&2
  if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    make_environment "$venv"
  fi
  install_pinned "$venv" --editable "$root${extra:+[$extra]}"
  # All cores compile. Some packages bring files that are no Python of this version.
  "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" "$root/roofline" >/dev/null 2>&1 || true
  cat "$root/pyproject.toml" "$root/constraints.txt" >"$stamp"
}
