"""A slot's pilot on every node of its job, started by the batch system's own launcher.

Each pilot gets its node's index (``VGRADS_NODE``, from 0) and the number of nodes
(``VGRADS_NODES``). The job's script ends when the last pilot has ended. ``srun`` passes the
environment on; ``pbsdsh`` and ``qrsh`` do not, and every user of the node can read a command line.
There the script is written to a file that only its owner can read, in the folder of the slot's
marks; it is removed when the slot ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.drivers.shell import here_document, quote

_HERE = "export VGRADS_NODE={node} VGRADS_NODES={nodes}"
_NODE_SCRIPT = """\
{exports}
export VGRADS_NODE="$1" VGRADS_NODES="$2"
cd "${{HOME:-/}}" || cd /
/bin/sh -c {pilot} >"$0.$1.out" 2>&1 </dev/null
code=$?
[ $code -eq 0 ] || echo "$code node $1: $(tail -n 1 "$0.$1.out")" >"$0.code"
exit $code
"""
_WAIT = """\
worst=0
for one in $started; do wait "$one" || worst=$?; done
if [ -s "$1.code" ]; then read -r worst said <"$1.code"; echo "$said"; fi
exit "$worst"
"""
SRUN = (
    "srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --overlap --export=ALL "
    "--kill-on-bad-exit=0 --wait=0 "
    "--mpi=none --cpu-bind=none --input=none --quiet"
)
"""Runs in parallel to the script's own step, with all resources of the job on a node; a failed node
ends no other.

``--overlap``: since 20.11 a step has exclusive processors, and another step would wait for ever.
Steps do not request processors by ``-c``, which since 22.05 would confine them to those.
"""
PBSDSH = """\
nodes=$(sort -u "$PBS_NODEFILE" | grep -c .)
line=0 node=0 seen=' ' started=
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
"""
"""The line number of each node's first processor is its number for ``pbsdsh -n``, in OpenPBS and in
Torque."""
QRSH = """\
PATH="$PATH${SGE_BINARY_PATH:+:$SGE_BINARY_PATH}"
hosts=$(awk '!seen[$1]++ {print $1}' "$PE_HOSTFILE")
nodes=$(echo "$hosts" | grep -c .)
node=0 started=
for host in $hosts; do
  if [ "$node" -eq 0 ]; then
    /bin/sh "$1" 0 "$nodes" &
  else
    qrsh -inherit -nostdin "$host" /bin/sh "$1" "$node" "$nodes" &
  fi
  started="$started $!" node=$((node + 1))
done
"""
"""The job's script runs on the first node of the file: it needs no ``qrsh``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start of a pilot in a slot's script: ``words`` of the shell, after the lines in
    ``prepare``."""

    words: str
    prepare: str = ""
    tidy: str = ""


def alone(pilot: str, exports: str = "") -> Launch:
    """Start the pilot once, where the job's script runs; it ends with the script, which may be
    killed before the pilot can look for it."""
    script = 'export VGRADS_SCRIPT="$$ $PPID"\n'
    return Launch(words=f"/bin/sh -c {quote(pilot)}", prepare=exports + script)


def only_node(pilot: str) -> Launch:
    """Start the pilot on the only node of a job."""
    return alone(pilot, _HERE.format(node=0, nodes=1) + "\n")


def by_environment(launcher: str, index: str, pilot: str, nodes: int) -> Launch:
    """Start the pilot through a launcher that passes the environment on and sets the node's index
    in ``index``."""
    command = _HERE.format(node=f'"${index}"', nodes=nodes)
    return Launch(
        words=f"{launcher.format(nodes=nodes)} /bin/sh -c {quote(f'{command}{chr(10)}{pilot}')}"
    )


def by_file(launcher: str, exports: str, pilot: str, name: str) -> Launch:
    """Start the pilot through a launcher that passes nothing on; all nodes must see the folder of
    the marks."""
    body = _NODE_SCRIPT.format(exports=exports, pilot=quote(pilot))
    written = here_document(f"( umask 077; cat >{name}.node )", body)
    return Launch(
        words=f'/bin/sh -c {quote(launcher + _WAIT)} vgrads "$NODE_SCRIPT"',
        prepare=f'NODE_SCRIPT="$PWD/{name}.node"\n{written}',
        tidy='rm -f "$NODE_SCRIPT" "$NODE_SCRIPT.code"\n',
    )
