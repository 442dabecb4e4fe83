"""A slot's pilot on every node of its job: what the batch systems' own launchers are told.

Each copy is told its node's index (``VGRADS_NODE``, from 0) and how many there are
(``VGRADS_NODES``). The job's script ends when the last copy has. ``srun`` hands the environment on;
``pbsdsh`` and ``qrsh`` do not, and what stands on a command line is seen by everybody on the node,
so there a file that only its owner can read lies beside the slot's marks and is removed when the
slot ends.
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
"""Beside the script's own step and with all that the job has on a node; a node that fails ends no
other.

``--overlap``: since 20.11 a step has its processors for itself, and another would wait for ever.
Steps ask for no processors by ``-c``, which from 22.05 on would confine them to those.
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
"""The line of each host's first processor is its number for ``pbsdsh -n``, in OpenPBS and in
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
"""The first host of the file is the one where the job's script runs: it needs no ``qrsh``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a slot's script starts its pilot: ``words`` of the shell, after what ``prepare`` has laid
    out."""

    words: str
    prepare: str = ""
    tidy: str = ""


def alone(pilot: str, exports: str = "") -> Launch:
    """Once, where the job's script runs."""
    return Launch(words=f"/bin/sh -c {quote(pilot)}", prepare=exports)


def only_node(pilot: str) -> Launch:
    """Every node of a job that has one."""
    return alone(pilot, _HERE.format(node=0, nodes=1) + "\n")


def by_environment(launcher: str, index: str, pilot: str, nodes: int) -> Launch:
    """Through a launcher that hands the environment on and names the node's index in ``index``."""
    command = _HERE.format(node=f'"${index}"', nodes=nodes)
    return Launch(
        words=f"{launcher.format(nodes=nodes)} /bin/sh -c {quote(f'{command}{chr(10)}{pilot}')}"
    )


def by_file(launcher: str, exports: str, pilot: str, name: str) -> Launch:
    """Through a launcher that hands nothing on; the folder of the marks must be seen from all
    nodes."""
    body = _NODE_SCRIPT.format(exports=exports, pilot=quote(pilot))
    written = here_document(f"( umask 077; cat >{name}.node )", body)
    return Launch(
        words=f'/bin/sh -c {quote(launcher + _WAIT)} vgrads "$NODE_SCRIPT"',
        prepare=f'NODE_SCRIPT="$PWD/{name}.node"\n{written}',
        tidy='rm -f "$NODE_SCRIPT" "$NODE_SCRIPT.code"\n',
    )
