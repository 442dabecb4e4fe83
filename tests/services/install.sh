#!/usr/bin/env bash
# Install the services that the tests need (Debian, as root): Slurm with its database, Grid Engine, OpenSSH,
# PostgreSQL, Chromium, faketime, podman, Ruby, Prometheus; and the tests of the standard library of Python.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
if have slurmctld && have slurmdbd && have mariadbd && have sge_qmaster && have sshd && have chromium && have faketime && have podman && have runc && have busybox && have ruby && have promtool &&
  ls /usr/lib/postgresql/*/bin/initdb /usr/lib/python3*/test/test_concurrent_futures* >/dev/null 2>&1; then exit 0; fi
debconf-set-selections <<'ANSWERS'
gridengine-common shared/gridenginemaster string localhost
gridengine-common shared/gridenginecell string default
gridengine-common shared/gridengineconfig boolean true
ANSWERS
log=$(mktemp)
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends \
    slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge slurmdbd slurm-wlm-mysql-plugin mariadb-server \
    gridengine-master gridengine-exec gridengine-client openssh-server openssh-client postgresql chromium \
    faketime podman runc busybox-static ruby prometheus libpython3.11-testsuite; } >"$log" 2>&1; then
  tail -n 20 "$log"
  exit 1
fi
