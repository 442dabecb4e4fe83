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
NODE_SCRIPT="$PWD/vg-5a53b8b9dcd9.node"
( umask 077; cat >vg-5a53b8b9dcd9.node ) <<'VGRADS-END'
export KEY='it'"'"'s'
export VGRADS_SLOT=run-1.a
export VGRADS_PROCS=8
VGRADS_HOST_KEY=$(cat "$0.key") || exit 1
export VGRADS_HOST_KEY
: >"$0.$1.read"
# the last node that has read it removes it
[ "$(ls "$0".*.read | wc -l)" -lt "$2" ] || rm -f "$0.key" "$0".*.read
export VGRADS_NODE="$1" VGRADS_NODES="$2"
cd "${HOME:-/}" || cd /
/bin/sh -c 'start_agent --all' >"$0.$1.out" 2>&1 </dev/null
code=$?
[ $code -eq 0 ] || echo "$code node $1: $(tail -n 1 "$0.$1.out")" >"$0.code"
exit $code
VGRADS-END
( umask 077; cat >vg-5a53b8b9dcd9.node.key ) <<'VGRADS-END'
the-key-of-the-slot
VGRADS-END
( cd "$HOME" && exec timeout -k 10 60 /bin/sh -c 'nodes=$(sort -u "$PBS_NODEFILE" | grep -c .)
line=0 node=0 seen='"'"' '"'"' started=
while read -r host; do
  case "$seen" in
  *" $host "*) ;;
  *)
    seen="$seen$host "
    pbsdsh -n "$line" -- /bin/sh "$1" "$node" "$nodes" </dev/null &
    started="$started $!" node=$((node + 1))
    ;;
  esac
  line=$((line + 1))
done <"$PBS_NODEFILE"
worst=0
for one in $started; do wait "$one" || worst=$?; done
if [ -s "$1.code" ]; then read -r worst said <"$1.code"; echo "$said"; fi
exit "$worst"
' vgrads "$NODE_SCRIPT" ) >vg-5a53b8b9dcd9.out 2>&1 </dev/null
code=$?
rm -f "$NODE_SCRIPT" "$NODE_SCRIPT.code" "$NODE_SCRIPT.key" "$NODE_SCRIPT".*.read
said=$(tail -n 40 vg-5a53b8b9dcd9.out | tr -d '\000' | LC_ALL=C grep -Ev '^$|^srun: error: .*: Exited with exit code [0-9]+$' |
  tail -n 1 | cut -c 1-300)
printf 'end %s %s\n' "$code" "$said" >>vg-5a53b8b9dcd9.state
exit $code
