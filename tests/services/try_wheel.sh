#!/usr/bin/env bash
# Install a wheel into an empty environment and run the main job with it, outside the checkout.
#     bash tests/services/try_wheel.sh dist/vgrads-VERSION-py3-none-any.whl
set -euo pipefail
wheel=$(realpath "$1")
constraints=$(realpath "$(dirname "$0")/../../constraints.txt")
size=$(realpath "$(dirname "$0")/../../scripts/install_size.py")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check -c "$constraints" "$wheel"
python3 "$size" env/bin/python --packages 65 --megabytes 760 | tail -n 1
export VGRADS_HOME="$folder/home"
env/bin/vgrads --version
env/bin/vgrads demo | tail -n 1
env/bin/python -m vgrads status --json | grep -q '"state": "kept"'
test -s gantt.html
env/bin/vgrads gantt "$(env/bin/vgrads status --json | grep -o 'run-[0-9a-f]*' | head -n 1)" -o run.svg
env/bin/vgrads sites list --json | grep -q history
echo "the wheel works"
