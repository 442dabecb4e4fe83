#!/usr/bin/env bash
# Install a wheel with pipx and run the main job with it, outside the checkout.
# The studies are installed last: nothing needs them.
#     bash tests/services/try_wheel.sh dist/vgrads-VERSION-py3-none-any.whl dist/vgrads_studies-….whl
set -euo pipefail
wheel=$(realpath "$1")
studies=$(realpath "$2")
constraints=$(realpath "$(dirname "$0")/../../constraints.txt")
size=$(realpath "$(dirname "$0")/../../scripts/install_size.py")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PIPX_HOME="$folder/pipx" PIPX_BIN_DIR="$folder/bin"
python3 -m venv tools
tools/bin/python -m pip install --quiet --disable-pip-version-check pipx
tools/bin/pipx install --quiet --pip-args="--quiet -c $constraints" "$wheel"
ln -s "$PIPX_HOME/venvs/vgrads" env
python3 "$size" env/bin/python --packages 65 --megabytes 760 | tail -n 1
export VGRADS_HOME="$folder/home"
bin/vgrads --version
bin/vgrads demo | tail -n 1
env/bin/python -m vgrads status --json | grep -q '"state": "kept"'
test -s gantt-lead.html
bin/vgrads gantt "$(bin/vgrads status --json | grep -o 'run-[0-9a-f]*' | head -n 1)" -o run.svg
bin/vgrads sites list --json | grep -q history
if bin/vgrads study bounds --help 2>refused; then exit 1; fi
grep -q "vgrads\[studies\]" refused
tools/bin/pipx runpip vgrads install --quiet --no-deps "$studies"
bin/vgrads study bounds --help | grep -q 'vgrads study bounds'
echo "the wheels work"
