#!/bin/sh
# A slot of vgrads.
export GREETING='it'"'"'s'
export VGRADS_SLOT=run-1.a
export VGRADS_PROCS=4
D="$HOME/.vgrads/slots"
mkdir -p "$D" || exit 1
cd "$D" || exit 1
# A slot that has run: a repeated job has nothing to do.
( set -C; : >vg-5a53b8b9dcd9.state ) 2>/dev/null || exit 0
find . -name 'vg-*' -mtime +30 -exec rm -f {} + 2>/dev/null
echo ready >>vg-5a53b8b9dcd9.state
export VGRADS_SCRIPT="$$ $PPID"
( cd "$HOME" && exec timeout -k 10 60 /bin/sh -c 'start_workers --all' ) >vg-5a53b8b9dcd9.out 2>&1 </dev/null
code=$?
said=$(tail -n 40 vg-5a53b8b9dcd9.out | tr -d '\000' | LC_ALL=C grep -Ev '^$|^srun: error: .*: Exited with exit code [0-9]+$' |
  tail -n 1 | cut -c 1-300)
printf 'end %s %s\n' "$code" "$said" >>vg-5a53b8b9dcd9.state
exit $code
