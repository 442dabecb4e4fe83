#!/bin/sh
# A slot of vgrads.
export KEY='it'"'"'s'
export VGRADS_SLOT=run-1.a
export VGRADS_PROCS=8
D=/marks
mkdir -p "$D" || exit 1
cd "$D" || exit 1
# A slot that has run: a repeated job has nothing to do.
( set -C; : >vg-5a53b8b9dcd9.state ) 2>/dev/null || exit 0
find . -name 'vg-*' -mtime +30 -exec rm -f {} + 2>/dev/null
echo ready >>vg-5a53b8b9dcd9.state
( cd "$HOME" && exec timeout -k 10 60 srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --overlap --export=ALL --kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none --input=all --quiet /bin/sh -c 'export VGRADS_NODE="$SLURM_NODEID" VGRADS_NODES=4
read -r VGRADS_HOST_KEY
export VGRADS_HOST_KEY
exec </dev/null
start_agent --all' ) >vg-5a53b8b9dcd9.out 2>&1 <<'VGRADS-END'
the-key-of-the-slot
VGRADS-END
code=$?
said=$(tail -n 40 vg-5a53b8b9dcd9.out | tr -d '\000' | LC_ALL=C grep -Ev '^$|^srun: error: .*: Exited with exit code [0-9]+$' |
  tail -n 1 | cut -c 1-300)
printf 'end %s %s\n' "$code" "$said" >>vg-5a53b8b9dcd9.state
exit $code
