#!/usr/bin/env bash
# Try the wheel outside the checkout as a stranger does: a set of commands run on this machine in one
# line of uv, and a shorter command in one of pipx; then look at what uv installed. The demonstration
# compiles for a minute of a processor, as that of the checkout does: scripts/release.py has the wheel
# run it.
# The studies are installed last: nothing needs them.
#     bash tests/services/try_wheel.sh dist/vgrads-VERSION-py3-none-any.whl dist/vgrads_studies-….whl
set -euo pipefail
wheel=$(realpath "$1")
studies=$(realpath "$2")
root=$(realpath "$(dirname "$0")/../..")
constraints="$root/constraints.txt"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PATH="$root/.venv/bin:$PATH" UV_CACHE_DIR="$folder/uv" UV_TOOL_DIR="$folder/tools" UV_TOOL_BIN_DIR="$folder/bin"
export UV_PYTHON_DOWNLOADS=never PIPX_HOME="$folder/pipx" PIPX_BIN_DIR="$folder/pipx-bin"
# uv does not read the settings of pip
cert=$(python3 -m pip config get global.cert 2>/dev/null || true)
if [ -f "$cert" ]; then export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"; fi
if [ -d "${PIP_FIND_LINKS:-}" ]; then export UV_FIND_LINKS="${UV_FIND_LINKS:-$PIP_FIND_LINKS}"; fi
python=$(command -v python3)
cd "$folder"

export VGRADS_HOME="$folder/home"
cp "$root"/data/local/* .
uv tool run --quiet --python "$python" --constraints "$constraints" --from "$wheel" \
  vgrads run local.yaml --out outputs >printed
tail -n 1 printed | grep 'the promise was KEPT'
test -s outputs/chain-1/results/total.txt
pipx run --quiet --python "$python" --pip-args="--quiet -c $constraints" --spec "$wheel" \
  vgrads sites list --json >listed
grep -q history listed

# without bytecode, which pip would add: 190 MB more
uv tool install --quiet --python "$python" --constraints "$constraints" "$wheel"
ln -s "$UV_TOOL_DIR/vgrads" env
"$python" "$root/scripts/install_size.py" env/bin/python --packages 65 --megabytes 580 | tail -n 1
bin/vgrads --version
env/bin/python -m vgrads status --json | grep -q '"state": "kept"'
bin/vgrads gantt "$(bin/vgrads status --json | grep -o 'run-[0-9a-f]*' | head -n 1)" -o run.svg
if bin/vgrads study bounds --help 2>refused; then exit 1; fi
grep -q "vgrads\[studies\]" refused
uv pip install --quiet --python env/bin/python --no-deps "$studies"
bin/vgrads study bounds --help | grep -q 'vgrads study bounds'
echo "the wheels work"
