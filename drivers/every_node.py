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

KEY = "VGRADS_HOST_KEY"
"""The variable of a slot's key. Scripts pass it on standard input or in a file: the environments of
``timeout`` and ``srun`` are readable while they run."""
READ_KEY = f"read -r {KEY}\nexport {KEY}\nexec </dev/null\n"
_READ_KEY_FILE = f"""\
{KEY}=$(cat "$0.key") || exit 1
export {KEY}
: >"$0.$1.read"
# the last node that has read it removes it
[ "$(ls "$0".*.read | wc -l)" -lt "$2" ] || rm -f "$0.key" "$0".*.read
"""
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
    "--mpi=none --cpu-bind=none --input=all --quiet"
)
"""Runs in parallel to the script's own step, with all resources of the job on a node; a failed node
ends no other.

``--overlap``: since 20.11 a step has exclusive processors, and another step would wait for ever.
``--input=all``: each node reads the key. Steps do not request processors by ``-c``, which since
22.05 would confine them to those.
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
    ``prepare``. ``key_file``: the pilots read the slot's key from a file, not from the standard
    input of ``words``."""

    words: str
    prepare: str = ""
    tidy: str = ""
    key_file: bool = False


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


def by_file(launcher: str, exports: str, pilot: str, name: str, key: str) -> Launch:
    """Start the pilot through a launcher that passes nothing on; all nodes must see the folder of
    the marks. ``key``: of the slot, in a file of its own, which is removed once all have read it;
    empty: none."""
    read_key = _READ_KEY_FILE if key else ""
    body = _NODE_SCRIPT.format(exports=exports + f"\n{read_key}".rstrip(), pilot=quote(pilot))
    written = here_document(f"( umask 077; cat >{name}.node )", body)
    if key:
        written += here_document(f"( umask 077; cat >{name}.node.key )", key)
    return Launch(
        words=f'/bin/sh -c {quote(launcher + _WAIT)} vgrads "$NODE_SCRIPT"',
        prepare=f'NODE_SCRIPT="$PWD/{name}.node"\n{written}',
        tidy='rm -f "$NODE_SCRIPT" "$NODE_SCRIPT.code" "$NODE_SCRIPT.key" "$NODE_SCRIPT".*.read\n',
        key_file=True,
    )
