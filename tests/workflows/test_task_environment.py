"""How tasks run: said more and less generally, put together to the letter, carried out as it was
said."""

import os

import pytest
import yaml

from tests.execmgr.test_engines import Bench
from tests.waiting import runs, until
from vgrads.agent.containers import container_name, ending
from vgrads.execmgr.tasks.command_line import TaskFolders, command_text, variable
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.portal.records.archive import pack, unpack
from vgrads.vgrid.catalog import build_catalog
from vgrads.vgrid.documents import SitesDocument
from vgrads.workflows.sets import SetDocument, build_set
from vgrads.workflows.task_environment import PLAIN, Container, TaskEnvironment
from vgrads.workflows.task_environment_document import TaskEnvironmentDocument
from vgrads.workflows.written import write_document

PLACE = TaskFolders(folder="/run/w/tasks/a.0", reads=("/set",), name="vgrads-1")
NAMES = (
    "OMP_NUM_THREADS",
    "VGRADS_COPY",
    "VGRADS_FOLDER",
    "VGRADS_PROCS",
    "VGRADS_SLOT",
    "VGRADS_TASK",
    "VGRADS_WORKFLOW",
)


def order(command="./model 'a b'", **text):
    return TaskOrder(
        key=("w", "a", 0),
        site="here",
        slot="s",
        procs=1,
        command=command,
        runtime_s=1.0,
        environment=TaskEnvironment(**text),
    )


def environment_of(text):
    return build_set(validate(SetDocument, yaml.safe_load(text), "set"), None, "set")


def test_a_command_without_anything_around_it_stays_as_it_is():
    assert command_text(order(), PLACE) == "./model 'a b'"


def test_setup_activation_and_folder_stand_before_the_command():
    text = command_text(order(setup=("ulimit -s 100",), venv="/v e", workdir="/data/it's"), PLACE)
    assert text == (
        "{ ulimit -s 100\n} || { echo 'vgrads: setup failed: ulimit -s 100' >&2; exit 125; }\n"
        ". '/v e/bin/activate' || exit 125\n"
        "cd -- '/data/it'\"'\"'s' || exit 125\n"
        "./model 'a b'"
    )


def test_apptainer_to_the_letter():
    box = Container(image="docker://debian:12", engine="apptainer", options=("--nv",))
    passed = " ".join(f'APPTAINERENV_{name}="${name}"' for name in (*NAMES, "SEED"))
    assert command_text(order(container=box, env=(("SEED", "1"),)), PLACE) == (
        f"{passed} apptainer exec --bind /set:/set:ro --bind "
        "/run/w/tasks/a.0:/run/w/tasks/a.0 --pwd /run/w/tasks/a.0 "
        "--nv docker://debian:12 /bin/sh -c './model '\"'\"'a b'\"'\"''"
    )
    other = command_text(order(container=Container(image="m.sif", engine="singularity")), PLACE)
    assert other.startswith('SINGULARITYENV_OMP_NUM_THREADS="$OMP_NUM_THREADS" ')
    assert " singularity exec --bind " in other
    odd = TaskFolders(folder="/run/a:b,c", name="n")
    assert r"--bind '/run/a\:b\,c:/run/a\:b\,c' --pwd /run/a:b,c" in command_text(
        order(container=box), odd
    )


def test_podman_and_docker_to_the_letter():
    box = Container(image="img:1", engine="podman", options=("--device", "/dev/x"))
    names = " ".join(f"--env {name}" for name in NAMES)
    mounts = (
        "--mount type=bind,source=/set,target=/set,readonly --mount "
        "type=bind,source=/run/w/tasks/a.0,target=/run/w/tasks/a.0"
    )
    assert command_text(order("true", container=box), PLACE) == (
        'podman run --rm --user "$(id -u):$(id -g)" '
        '$([ "$(id -u)" = 0 ] || echo --userns keep-id) --security-opt label=disable '
        f"--name vgrads-1 --network host --workdir /run/w/tasks/a.0 {mounts} {names} --device /dev/x --entrypoint /bin/sh "
        "img:1 -c true"
    )
    docker = Container(image="img:1", engine="docker")
    assert command_text(order("true", container=docker, conda="env1", workdir="/d"), PLACE) == (
        f'docker run --rm --user "$(id -u):$(id -g)" --name vgrads-1 --network host '
        f"--workdir /d {mounts} "
        f"--mount type=bind,source=/d,target=/d {names} --entrypoint /bin/sh img:1 -c "
        '\'eval "$("${CONDA_EXE:-conda}" shell.posix hook)" && conda activate env1 || '
        "{ echo '\"'\"'vgrads: the conda environment env1 cannot be activated'\"'\"' >&2; "
        "exit 125; }\ntrue'"
    )
    odd = TaskFolders(folder='/run/a "b",c', name="n")
    assert """'type=bind,"source=/run/a ""b"",c","target=/run/a ""b"",c"'""" in command_text(
        order("true", container=docker), odd
    )


def test_what_only_the_node_knows_is_a_variable():
    box = Container(image="img:1", engine="podman")
    there = TaskFolders(
        folder=variable("VGRADS_FOLDER"), reads=(variable("VGRADS_INPUTS"),), passes=("SITE",)
    )
    text = command_text(order("true", container=box), there)
    assert '--name "$VGRADS_CONTAINER" ' in text and " --env SITE " in text
    assert ' --workdir "$VGRADS_FOLDER" ' in text
    assert ' type=bind,source="$VGRADS_INPUTS",target="$VGRADS_INPUTS",readonly ' in text
    apptainer = Container(image="m.sif", engine="apptainer")
    text = command_text(order("true", container=apptainer), there)
    assert text.startswith('[ -z "${SITE+x}" ] || export APPTAINERENV_SITE="$SITE"\n')


def test_what_dies_with_its_processes_needs_no_ending():
    assert ending("", "n") == ending("apptainer", "n") == ()
    assert ending("podman", "n") == (
        "podman",
        "rm",
        "--force",
        "--time",
        "0",
        "--ignore",
        "n",
    )
    assert ending("docker", "n") == ("docker", "rm", "--force", "n")
    assert container_name("one") != container_name("other")


LEVELS = """
name: s
deadline: 1h
env: {A: set, B: set}
setup: module load gcc
container: {image: base.sif, engine: apptainer}
workflows:
  - name: w
    count: 2
    env: {B: workflow}
    conda: geo
    workdir: /data
    tasks:
      - {id: plain, runtime_s: 1, command: "true"}
      - {id: own, runtime_s: 1, command: "true", setup: [one, two], venv: /v, workdir: "", container: "", env: {A: task}}
  - {name: x, tasks: [{id: a, runtime_s: 1, command: "true"}]}
"""


def test_the_more_special_adds_to_the_more_general_or_replaces_it():
    workflow_set = environment_of(LEVELS)
    first, second, third = workflow_set.workflows
    plain, own = (first.tasks[i].environment for i in ("plain", "own"))
    assert first.tasks is second.tasks  # equal workflows share what they have
    assert (plain.conda, plain.venv, plain.workdir, plain.boxed.image) == (
        "geo",
        None,
        "/data",
        "base.sif",
    )
    assert (own.conda, own.venv, own.workdir, own.boxed) == (None, "/v", "", None)
    assert (plain.setup, own.setup) == (("module load gcc",), ("module load gcc", "one", "two"))
    assert (dict(workflow_set.env), dict(plain.env), dict(own.env)) == (
        {"A": "set", "B": "set"},
        {"B": "workflow"},
        {"B": "workflow", "A": "task"},
    )
    assert third.tasks["a"].environment == TaskEnvironment(
        setup=("module load gcc",), container=Container(image="base.sif", engine="apptainer")
    )
    assert unpack(pack(workflow_set), "archive") == workflow_set
    again = build_set(validate(SetDocument, write_document(workflow_set), "again"), None, "again")
    assert [w.tasks for w in again.workflows] == [w.tasks for w in workflow_set.workflows]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("env", {"VGRADS_X": "1"}, "cannot be set for tasks"),
        ("workdir", "data", "not an absolute path"),
        ("venv", "v", "not an absolute path"),
        ("container", {"image": "x", "engine": "rkt"}, "apptainer"),
        ("container", "--privileged", "container"),
        ("conda", "--help", "conda"),
        ("errors", [{"exit": 256}], "256 is not an exit code"),
        ("errors", [{"exit": []}], "at least one exit code"),
        ("errors", [{"exit": 1, "memory": 0.5}], "memory"),
        ("errors", [{"retries": -1}], "retries"),
    ],
)
def test_what_is_written_down_wrong_is_reported(field, value, text):
    with pytest.raises(InputError, match=text):
        validate(TaskEnvironmentDocument, {field: value}, "it")


def test_conda_and_venv_do_not_go_together():
    with pytest.raises(InputError, match="not both"):
        validate(TaskEnvironmentDocument, {"conda": "a", "venv": "/b"}, "it")


@pytest.mark.parametrize(
    ("site", "existing"),
    [
        ({"kind": "local"}, None),
        ({"kind": "dedicated", "driver": "slurm"}, ()),
        ({"kind": "dedicated"}, ("apptainer", "singularity", "docker", "podman")),
        ({"kind": "local", "containers": ["docker"]}, ("docker",)),
    ],
)
def test_sites_say_which_engines_they_have(site, existing, tmp_path, monkeypatch):
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    document = validate(SitesDocument, {"site": [{"name": "a", "procs": 2, **site}]}, "sites")
    assert build_catalog(document, tmp_path, "sites").sites[0].containers == (
        ("podman",) if existing is None else existing
    )


BOXED = """
name: s
deadline: 1h
workflows: [{name: w, tasks: [{id: model, runtime_s: 1, command: "true", container: {image: m.sif, engine: apptainer}}]}]
"""
HERE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ncontainers = ["podman", "docker"]\n'


def test_a_container_that_no_site_can_run_is_refused_before_anything_runs(vgrads, write):
    answer = vgrads("run", write("set.yaml", BOXED), "--sites", write("sites.toml", HERE))
    assert answer.code == 3
    assert (
        "task 'model' needs apptainer for its image 'm.sif', sites have docker, podman"
        in answer.out + answer.err
    )


@pytest.fixture
def bench(tmp_path):
    result = Bench("processes", tmp_path)
    yield result
    result.close()


def run(bench, command, outputs=(), name="a", **text):
    bench.engine.start(
        [bench.order(name, command, outputs=outputs, environment=TaskEnvironment(**text))]
    )
    return bench.ends(1)[name]


def test_setup_is_visible_to_the_command_and_its_failure_is_reported(bench):
    assert run(bench, 'echo "$ONE" >a', ("a",), setup=("export ONE='1 2'",)).ok
    assert bench.result("a") == "1 2\n"
    assert run(bench, "true", name="b", setup=("cd /nowhere/at/all",)).reason.endswith(
        "vgrads: setup failed: cd /nowhere/at/all"
    )


def test_setup_that_says_nothing_or_much_is_setup(bench):
    setup = (
        "",
        "# nothing",
        "if true; then X=1; fi",
        "f() { echo $X; }",
        "X=$((X + 1))\n# and so on",
    )
    assert run(bench, "f >a", ("a",), setup=setup).ok
    assert bench.result("a") == "2\n"


def test_modules_are_selected_by_a_plain_shell(bench, tmp_path):
    init = tmp_path / "modules" / "init"
    init.mkdir(parents=True)
    (init / "sh").write_text('module() { export LOADED="$*"; }\n')
    env = (("MODULESHOME", str(tmp_path / "modules")), ("LMOD_PKG", str(tmp_path / "none")))
    assert run(bench, "echo $LOADED >a", ("a",), env=env, setup=("module load gcc",)).ok
    assert bench.result("a") == "load gcc\n"


def test_conda_and_venv_are_activated(bench, tmp_path):
    conda = tmp_path / "conda"
    conda.write_text("#!/bin/sh\necho 'conda() { [ \"$2\" != none ] && export AS=$2; }'\n")
    conda.chmod(0o755)
    env = (("CONDA_EXE", str(conda)),)
    assert run(bench, "echo $AS >a", ("a",), env=env, conda="geo").ok
    assert bench.result("a") == "geo\n"
    assert "none cannot be activated" in run(bench, "true", name="n", env=env, conda="none").reason
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").write_text("AS=venv\n")
    assert run(bench, "echo $AS >b", ("b",), name="b", venv=str(tmp_path / "venv")).ok
    assert bench.result("b") == "venv\n"


def test_in_a_workdir_outputs_count_that_the_task_wrote_and_no_older_ones(bench, tmp_path):
    work = tmp_path / "my work"
    (work / "d").mkdir(parents=True)
    (work / "a").write_text("old")
    (work / "d" / "x").write_text("old")
    stale = run(bench, "pwd >here", ("here", "a"), workdir=str(work))
    assert stale.reason == "did not write 'a'"
    assert run(
        bench,
        'echo new >a; echo x >d/x; echo own >"$VGRADS_FOLDER/c"',
        ("a", "d", "c"),
        "b",
        workdir=str(work),
    ).ok
    assert [bench.result(n) for n in ("a", "d/x", "c")] == ["new\n", "x\n", "own\n"]
    assert (work / "a").read_text() == "new\n"  # and stays where it was written
    assert (work / "here").read_text() == f"{work}\n"
    assert "125" in run(bench, "true", name="n", workdir=str(tmp_path / "none")).reason


def test_plain_manners_cost_nothing():
    assert TaskEnvironment().over(TaskEnvironment(conda="a")) == TaskEnvironment(conda="a")
    assert PLAIN.over(PLAIN) is PLAIN


LIKE_DOCKER = """#!/bin/sh
[ "$1" = rm ] && { shift 2; kill -9 $(cut -d' ' -f1 '%(folder)s'/$1); exit; }
while [ "$1" != --name ]; do shift; done
name=$2
setsid env -i sleep 600 </dev/null >/dev/null 2>&1 &
echo $! $VGRADS_TASK >'%(folder)s'/$name
wait
"""


@pytest.mark.parametrize("kind", ["processes", "agents"])
def test_a_container_that_no_mark_tells_is_ended_by_name(kind, tmp_path, monkeypatch):
    programs, reserved = tmp_path / "bin", tmp_path / "held"
    programs.mkdir()
    reserved.mkdir()
    (programs / "docker").write_text(LIKE_DOCKER % {"folder": reserved})
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    bench = Bench(kind, tmp_path)
    try:
        environment = TaskEnvironment(container=Container(image="i", engine="docker"))
        orders = [bench.order(name, "true", environment=environment) for name in ("ended", "left")]
        bench.engine.start(orders)
        until(
            lambda: len([p for p in reserved.iterdir() if p.read_text().strip()]) == 2,
            lambda: str(bench.engine.poll()),
        )
        rows = [path.read_text().split() for path in reserved.iterdir()]
        pids = {task: int(pid) for pid, task in rows}
        bench.engine.cancel(orders[0].key)
        until(lambda: not runs(pids["ended"]))
        assert runs(pids["left"])
    finally:
        bench.close()
    until(lambda: not runs(pids["left"]))
