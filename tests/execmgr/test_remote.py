"""Inputs and outputs by URL: streamed, checked, fetched once, what goes wrong told for what it
is."""

import hashlib
import importlib.util
import io
import ipaddress
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
import urllib.response
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.execmgr.test_engines import Bench
from tests.workflows.test_task_environment import environment_of
from vgrads.agent.programs import staging
from vgrads.api.wiring import RunFiles
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.worker import check_document
from vgrads.portal.records.archive import pack, unpack
from vgrads.vgrid.catalog import Site
from vgrads.workflows.remote import FetchDocument, RemoteFile, SendDocument
from vgrads.workflows.sets import SetDocument, build_set
from vgrads.workflows.task_environment import TaskEnvironment
from vgrads.workflows.written import write_document

BODY = b"one\ntwo\n" * 1000
SHA = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


class Files(BaseHTTPRequestHandler):
    """Gives what it has, takes what it is given; some paths go wrong on purpose."""

    def log_message(self, *_):
        """Nobody reads it."""

    def do_GET(self):
        self.server.requests[self.path] += 1
        if self.path == "/busy" and self.server.requests[self.path] == 1:
            return self.send_error(503)
        body = self.server.files.get("/a.dat" if self.path in ("/busy", "/cut") else self.path)
        if body is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return self.wfile.write(body[:100] if self.path == "/cut" else body)

    def do_PUT(self):
        self.server.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.files, server.requests = {"/a.dat": BODY}, Counter()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web():
    with serving() as server:
        yield server


@pytest.fixture(params=["processes", "agents", "apart"])
def bench(request, tmp_path):
    result = Bench(request.param, tmp_path)
    yield result
    result.close()


@pytest.fixture
def here(tmp_path):
    result = Bench("processes", tmp_path)
    yield result
    result.close()


def run(bench, name, command, **more):
    bench.engine.start([bench.order(name, command, **more)])
    return bench.ends(1)[name]


def get(url, digest="", name="a.dat"):
    return {"fetches": (RemoteFile(name=name, url=url, digest=digest),)}


def test_inputs_come_from_urls_once_and_outputs_go_there(bench, web):
    fetch, send = (
        get(f"{web.url}/a.dat", SHA),
        (RemoteFile(name="b/b.dat", url=f"{web.url}/b.dat"),),
    )
    orders = [
        bench.order(
            n,
            "mkdir b; head -1 a.dat >b/b.dat; wc -c <a.dat >n",
            outputs=("n",),
            sends=send,
            **fetch,
        )
        for n in "pqr"
    ]
    bench.engine.start(orders)
    ends = bench.ends(3)
    assert all(end.ok for end in ends.values()), ends
    assert bench.result("n") == "8000\n"
    assert (web.requests["/a.dat"], web.files["/b.dat"]) == (1, b"one\n")


def test_what_goes_wrong_is_reported_for_what_it_is(here, web):
    def fails(name, url, digest=""):
        end = run(here, name, "true", **get(url, digest))
        assert not end.ok
        return end.reason.removeprefix(url).strip(), end.code

    url = f"{web.url}/a.dat"
    other = "sha256:" + "0" * 64
    assert fails("digest", url, other) == (f"has {SHA}, {other} is stated", 65)
    assert fails("none", f"{web.url}/none") == (": HTTP 404 Not Found", 65)
    assert fails("cut", f"{web.url}/cut", SHA) == (": ended after 100 of 8000 bytes", None)
    reason, code = fails("silent", f"http://127.0.0.1:{closed_port()}/x")
    assert reason.startswith(": does not answer:") and code is None  # tried again, as bad luck
    assert fails("gone", "file:///nowhere/at/all")[1] == 65
    assert not list((here.folder / "run" / ".fetched").glob("*.[0-9]*"))  # nothing half-fetched
    assert run(here, "md5", "true", **get(url, f"md5:{hashlib.md5(BODY).hexdigest()}")).ok


def test_a_server_that_does_not_answer_is_tried_with_growing_pauses_for_a_limited_time():
    pauses, answers = [], iter([ConnectionRefusedError("refused"), TimeoutError("slow"), None])

    def transfer():
        error = next(answers)
        if error:
            raise error

    staging.again(transfer, "http://a/x", time.monotonic() + 60.0, pauses.append)
    assert pauses == [1.0, 2.0]

    def refuse():
        raise ConnectionRefusedError("refused")

    pauses.clear()
    with pytest.raises(ConnectionRefusedError):
        staging.again(refuse, "http://a/x", time.monotonic(), pauses.append)
    assert pauses == []  # no time is left for a pause

    def missing():
        raise FileNotFoundError("no such file")

    with pytest.raises(FileNotFoundError):
        staging.again(missing, "file:///x", time.monotonic() + 60.0, pauses.append)
    assert pauses == []  # it would not come later


def closed_port():
    with serving() as server:
        return server.server_port


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::1]"),
    ],
)
def test_a_service_fetches_from_public_addresses_only(tmp_path, web, host):
    here = Bench("processes", tmp_path)
    here.engine.close()
    here.place = replace(here.place, private={"here": False})
    here.engine = here.make()
    url = f"http://{host}:{web.server_port}/a.dat"
    end = run(here, "a", "true", **get(url))
    here.close()
    assert (end.ok, end.code) == (False, 65)
    assert "which is not public: the operator can allow it" in end.reason
    assert "private_addresses = true" in end.reason
    assert not web.requests


def test_a_redirect_to_a_private_address_is_not_followed(web):
    class Public(urllib.request.BaseHandler):
        """A public server that sends its callers elsewhere."""

        handler_order = 1

        def http_open(self, request):
            if request.host != "public.example":
                return None
            headers = Message()
            headers["Location"] = f"{web.url}/a.dat"
            answer = urllib.response.addinfourl(io.BytesIO(), headers, request.full_url, 302)
            answer.msg = "Found"
            return answer

    opener = staging.public_opener()
    opener.add_handler(Public())
    with pytest.raises(staging.NotPublic, match=r"127\.0\.0\.1"):
        opener.open("http://public.example/")
    assert not web.requests


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("192.0.9.1", True),
        ("2600::1", True),
        ("64:ff9b::8.8.8.8", True),  # how a network without IPv4 reaches it
        ("2002:808:808::1", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::169.254.169.254", False),
        ("64:ff9b:1::8.8.8.8", False),
        ("2002:a00:1::1", False),
        ("2002:e000:1::1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("::ffff:10.0.0.1", False),
        ("::127.0.0.1", False),
        ("fec0::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff0e::1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
    ],
)
def test_addresses_that_stand_for_others_are_as_public_as_those(address, public):
    assert staging.is_public(ipaddress.ip_address(address)) == public


@pytest.mark.parametrize("scheme", ["ftp", "file", "data", "gopher"])
def test_a_redirect_leads_to_http_and_https_only(scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/a.dat"

        class Public(urllib.request.BaseHandler):
            """A public server that sends its callers elsewhere."""

            handler_order = 1

            def http_open(self, request):
                headers = Message()
                headers["Location"] = url
                answer = urllib.response.addinfourl(io.BytesIO(), headers, request.full_url, 302)
                answer.msg = "Found"
                return answer

        opener = staging.public_opener()
        opener.add_handler(Public())
        with pytest.raises(urllib.error.HTTPError if scheme != "ftp" else staging.NotPublic):
            opener.open("http://public.example/", timeout=5)
        for name in ("ftp", "file", "data"):
            with pytest.raises(urllib.error.URLError, match="unknown url type"):
                opener.open(f"{name}://127.0.0.1/x", timeout=5)
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_private_addresses_are_for_those_who_run_vgrads_and_where_the_operator_says_so():
    sites = [
        Site(name=name, kind="local", procs=1, private_addresses=may)
        for name, may in (("unstated", None), ("yes", True), ("no", False))
    ]
    for own, unstated in ((True, True), (False, False)):
        files = RunFiles(run="r", folder=Path("/r"), set_folder=Path("/s"), own=own)
        assert files.tasks(sites).private == {"unstated": unstated, "yes": True, "no": False}


def test_an_output_that_was_not_written_and_another_that_cannot_be_sent(here, web, tmp_path):
    send = (RemoteFile(name="b", url=f"{web.url}/b"),)
    assert run(here, "a", "true", sends=send).reason == "did not write 'b'"
    assert (run(here, "c", "echo x >b; exit 3", sends=send).code, "/b" in web.files) == (3, False)
    silent = (RemoteFile(name="b", url=f"http://127.0.0.1:{closed_port()}/b"),)
    assert run(here, "d", "echo x >b", sends=silent).code is None
    file = (RemoteFile(name="a b", url=f"file://{tmp_path}/to/a%20b"),)
    assert run(here, "e", "echo x >'a b'", sends=file).ok
    assert [p.name for p in (tmp_path / "to").iterdir()] == ["a b"]


def test_what_a_killed_task_had_fetched_is_fetched_anew(here, web):
    retained = here.folder / "run" / ".fetched"
    retained.mkdir(parents=True)
    whole = hashlib.sha256(f"{web.url}/a.dat {SHA}".encode()).hexdigest()[:32]
    (retained / f"{whole}.{os.uname().nodename}.{2**30}").write_bytes(BODY[:100])
    assert run(here, "a", "wc -c <a.dat >n", outputs=("n",), **get(f"{web.url}/a.dat", SHA)).ok
    assert here.result("n") == "8000\n"
    assert sorted(p.name for p in retained.iterdir()) == [whole, f"{whole}.lock"]


def test_a_file_is_never_in_memory_whole(here, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(250 * 2**20)
    to = tmp_path / "to"
    send = (RemoteFile(name="large", url=f"file://{to}"),)
    bounded = {"memory_mib": 100.0, "sends": send, **get(f"file://{large}", name="in")}
    end = run(here, "a", "ln -f $(readlink -f in) large", **bounded)
    assert end.ok, end.reason
    assert to.stat().st_size == 250 * 2**20


def test_what_is_fetched_may_be_written_over_by_its_task_alone(here, web):
    fetch = get(f"{web.url}/a.dat", SHA)
    assert run(here, "a", "echo mine >>a.dat", outputs=("a.dat",), **fetch).ok
    assert here.result("a.dat") == BODY.decode() + "mine\n"
    assert run(here, "b", "wc -c <a.dat >n", outputs=("n",), **fetch).ok
    assert here.result("n") == "8000\n"


def test_with_a_workdir_outputs_are_sent_from_there(here, web, tmp_path):
    (tmp_path / "w").mkdir()
    send = (RemoteFile(name="b", url=f"{web.url}/b"),)
    environment = TaskEnvironment(workdir=str(tmp_path / "w"))
    assert run(
        here,
        "a",
        'cat "$VGRADS_FOLDER/a.dat" >b',
        sends=send,
        environment=environment,
        **get(f"{web.url}/a.dat"),
    ).ok
    assert web.files["/b"] == BODY


SET = """
name: s
deadline: 1h
workflows:
  - name: w
    count: 2
    tasks:
      - {{id: a, runtime_s: 1, command: "cp a.dat b.dat", inputs: [{{url: "{url}/{file}", sha256: '{sha}'}}], outputs: [{{name: b.dat, url: "{url}/{{workflow}}/{{task}}.dat"}}]}}
      - {{id: b, runtime_s: 1, parents: [a], inputs: [b.dat, c.txt], command: "wc -l <b.dat >n; cat c.txt >>n", outputs: [n]}}
"""
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\n'


def written(write, url, sha=SHA, file="a.dat"):
    return write("set.yaml", SET.format(url=url, sha=sha.partition(":")[2], file=file))


def test_a_whole_run_over_urls(vgrads, write, web, tmp_path):
    write("c.txt", "beside\n")
    answer = vgrads(
        "run",
        written(write, web.url),
        "--sites",
        write("sites.toml", SITES),
        "--out",
        tmp_path / "out",
    )
    assert answer.code == 0, answer.err
    assert {p.read_text() for p in (tmp_path / "out").glob("*/results/n")} == {"2000\nbeside\n"}
    assert web.files["/w-1/a.dat"] == web.files["/w-2/a.dat"] == BODY
    assert web.requests["/a.dat"] == 1


def test_a_digest_that_differs_is_the_tasks_own_fault(vgrads, write, web):
    write("c.txt", "beside\n")
    answer = vgrads(
        "run", written(write, web.url, "sha256:" + "0" * 64), "--sites", write("sites.toml", SITES)
    )
    assert answer.code == 1
    text = " ".join((answer.out + answer.err).split())
    assert f"a.dat has {SHA}, sha256:{'0' * 64} is stated" in text
    assert web.requests["/a.dat"] <= 4  # twice for each of two workflows, and never again


def test_what_answers_the_second_time_is_tried_again(vgrads, write, web):
    text = (
        "name: s\ndeadline: 1h\nworkflows: [{name: w, tasks: [{id: a, runtime_s: 1, command: "
        '"wc -c <busy", inputs: [{url: "URL/busy"}]}]}]\n'
    )
    answer = vgrads(
        "run",
        write("set.yaml", text.replace("URL", web.url)),
        "--sites",
        write("sites.toml", SITES),
    )
    assert (answer.code, web.requests["/busy"]) == (0, 2)


def test_the_document_is_stored_and_written_again():
    workflow_set = environment_of(
        SET.format(url="http://x", sha=SHA.partition(":")[2], file="a.dat")
    )
    a, b = (workflow_set.workflows[0].tasks[i] for i in "ab")
    assert a.fetches == (RemoteFile(name="a.dat", url="http://x/a.dat", digest=SHA),)
    assert b.inputs == ("c.txt",)
    assert [f.of("w-1", "b").url for f in b.fetches] == [
        "http://x/w-1/a.dat"
    ]  # where the other one sends it
    assert unpack(pack(workflow_set), "archive") == workflow_set
    again = build_set(validate(SetDocument, write_document(workflow_set), "again"), None, "again")
    assert [w.tasks for w in again.workflows] == [w.tasks for w in workflow_set.workflows]


def test_a_service_keeps_the_document_so_that_it_reads_it_again():
    y_a_m_l_object = yaml.safe_load(
        SET.format(url="http://x", sha=SHA.partition(":")[2], file="a.dat")
    )
    y_a_m_l_object["workflows"][0]["tasks"][0]["inputs"][0]["as"] = "in/a.dat"
    y_a_m_l_object["workflows"][0] |= {"container": {"image": "i"}, "errors": [{"exit": [1, 2]}]}
    checked_set = check_document(y_a_m_l_object, 100)
    again = check_document(json.loads(checked_set.text), 100)
    assert again == checked_set
    assert '"as": "in/a.dat"' in checked_set.text


def test_names_in_urls_are_quoted_where_urls_are():
    file = RemoteFile(name="x", url="http://x/{workflow}/{task}")
    assert file.of("w", 'a b"c').url == "http://x/w/a%20b%22c"
    assert RemoteFile(name="x", url="s3://x/{task}").of("w", "a b").url == "s3://x/a b"


def test_two_tasks_that_claim_a_single_url_are_refused():
    text = SET.format(url="http://x", sha=SHA.partition(":")[2], file="a.dat").replace(
        "/{workflow}/", "/"
    )
    with pytest.raises(InputError, match=r"w-1/a and w-2/a both send to http://x/a.dat"):
        environment_of(text)


@pytest.mark.parametrize(
    ("model", "fields", "text"),
    [
        (FetchDocument, {"url": "ftp://x/y"}, "not a URL of"),
        (FetchDocument, {"url": "https://me:secret@x/y"}, "user or password"),
        (FetchDocument, {"url": "https://x/"}, "does not end with a file name"),
        (FetchDocument, {"url": "http:///y"}, "names no machine"),
        (FetchDocument, {"url": "file://there/y"}, "another machine"),
        (FetchDocument, {"url": "http://x/a b"}, "blanks"),
        (FetchDocument, {"url": "http://x/{run}/a"}, "unknown placeholder"),
        (FetchDocument, {"url": "http://[x/a"}, "not a valid URL"),
        (FetchDocument, {"url": "http://x/a", "sha256": "12"}, "sha256"),
        (FetchDocument, {"url": "http://x/a", "sha256": "0" * 64, "md5": "0" * 32}, "not both"),
        (SendDocument, {"url": "http://x/a", "name": ""}, "name"),
    ],
)
def test_urls_that_cannot_be_are_refused(model, fields, text):
    with pytest.raises(InputError, match=text):
        validate(model, fields, "it")


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ('["a.dat", {url: "http://x/a.dat"}]', "names 'a.dat' twice"),
        ('[{url: "http://x/a", as: "../a"}]', "is outside"),
        ('[{url: "http://x/a", as: ".task"}]', "cannot be the name"),
    ],
)
def test_names_of_fetched_files_are_checked(inputs, output):
    text = (
        "name: s\ndeadline: 1h\nworkflows: [{name: w, tasks: [{id: a, runtime_s: 1, "
        f'command: "true", inputs: {inputs}}}]}}]\n'
    )
    with pytest.raises(InputError, match=output):
        environment_of(text)


S3 = (
    "name: s\ndeadline: 1h\nworkflows: [{name: w, tasks: [{id: a, runtime_s: 1, command: "
    '"true", inputs: [{url: "s3://bucket/a"}]}]}]\n'
)


def test_s3_that_is_not_installed_is_reported_before_anything_runs(vgrads, write, monkeypatch):
    existing = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "s3fs" else existing(name, *a)
    )
    answer = vgrads("run", write("set.yaml", S3), "--sites", write("sites.toml", SITES))
    assert answer.code == 2
    assert "vgrads[s3]" in answer.out + answer.err


@pytest.fixture
def bucket():
    pytest.importorskip("s3fs", reason="s3fs is not installed (vgrads[s3])")
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 heavy

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="bucket")
    client.put_object(Bucket="bucket", Key="in/a.dat", Body=BODY)
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    yield client, TaskEnvironment(env=tuple(environment.items()))
    server.stop()


@pytest.mark.more
def test_objects_of_a_store(here, bucket):
    client, environment = bucket
    send = (RemoteFile(name="b", url="s3://bucket/out/b"),)
    end = run(
        here,
        "a",
        "head -1 a.dat >b",
        sends=send,
        environment=environment,
        **get("s3://bucket/in/a.dat", SHA),
    )
    assert end.ok, end.reason
    assert client.get_object(Bucket="bucket", Key="out/b")["Body"].read() == b"one\n"
    assert run(here, "n", "true", environment=environment, **get("s3://bucket/none")).code == 65
