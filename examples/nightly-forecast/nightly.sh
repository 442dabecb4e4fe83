#!/bin/sh
# One night: promise, run, keep the results under the day. The exit status is that of vgrads: 0 the
# promise was kept, 1 it was not, 3 it cannot be promised; a timer or cron reports all but 0.
set -eu
cd "$(dirname "$0")"
day=$(date +%F)
mkdir -p "nights/$day"
vgrads plan forecast.yaml --sites sites.toml --gantt "nights/$day/plan.html" >"nights/$day/plan.txt"
exec vgrads run forecast.yaml --sites sites.toml --gantt "nights/$day/run.html" >"nights/$day/run.txt"
