#!/usr/bin/env bash
# Makes .venv from requirements.lock and finds Java 17+ (installing it where the system's package manager can).
# Does nothing when both are there already. Usage: setup.sh [python|java|all]
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { printf '\033[2m· %s\033[0m\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

python_env() {
  local python=${PYTHON:-python3} stamp
  command -v "$python" >/dev/null || fail "no $python here: install Python 3.11 or newer, or name one with PYTHON=/path/to/python3"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" -V 2>&1); 3.11 or newer is needed: name one with PYTHON=/path/to/python3"
  stamp=$(cat requirements.lock pyproject.toml hack/setup/uv.txt | "$python" -c 'import hashlib,sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
  [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ] && return
  [ -x .venv/bin/python ] || { say "making .venv with $("$python" -V)"; "$python" -m venv .venv; }
  # uv installs the same locked files twice as fast, but reads no pip configuration: whoever has an index there gets pip.
  if .venv/bin/pip config get global.index-url >/dev/null 2>&1 || [ -n "${PIP_INDEX_URL:-}" ]; then
    say "installing requirements.lock with pip (about 2 minutes)"
    .venv/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
  else
    say "installing requirements.lock (about 1 minute)"
    .venv/bin/pip install -q --disable-pip-version-check --require-hashes -r hack/setup/uv.txt
    .venv/bin/uv pip install -q --python .venv/bin/python --require-hashes -r requirements.lock
  fi
  .venv/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
  echo "$stamp" > .venv/.stamp
}

java_version() { "$1" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1; }

java_17() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/java} version root=""
  java=${java:-$(command -v java || true)}
  version=$([ -n "$java" ] && java_version "$java" || true)
  [ "${version:-0}" -ge 17 ] && return
  [ "$(id -u)" = 0 ] || root=$(command -v sudo || true)
  local need="Spark needs Java 17 or newer (found: ${version:-none})"
  if [ "$(id -u)" != 0 ] && [ -z "$root" ] && ! command -v brew >/dev/null; then
    fail "$need. Install a JDK or JRE 17+ and set JAVA_HOME, then run this again"
  elif command -v apt-get >/dev/null; then
    say "$need: installing default-jre-headless with apt-get"
    $root apt-get update -qq && $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null
  elif command -v dnf >/dev/null; then
    say "$need: installing java-latest-openjdk-headless with dnf"
    $root dnf install -y -q java-latest-openjdk-headless
  elif command -v brew >/dev/null; then
    say "$need: installing openjdk with brew"
    brew install -q openjdk
    [ -n "${JAVA_HOME:-}" ] || say "set JAVA_HOME=$(brew --prefix openjdk) for Spark to find it"
  else
    fail "$need, and no package manager that this script knows is here. Install Java 17+ and set JAVA_HOME"
  fi
  version=$(java_version java)
  [ "${version:-0}" -ge 17 ] || fail "Java is still ${version:-missing} after the install. Install Java 17+ and set JAVA_HOME"
}

case "${1:-all}" in
  python) python_env ;;
  java) java_17 ;;
  all) python_env; java_17 ;;
  *) fail "unknown step '$1': python, java or all" ;;
esac
