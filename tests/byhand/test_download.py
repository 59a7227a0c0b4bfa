"""Downloads from servers on this machine: complete, resumed, not resumable, broken off, changed meanwhile, wrong."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from coreshot.data import download as module
from coreshot.data.download import download
from coreshot.errors import CoreshotError

CONTENT = np.random.default_rng(0).bytes(50_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; what else it does is said by its attributes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag = CONTENT, '"one"'
        self.can_resume, self.says_length = True, True
        self.breaks_after = None  # bytes of one answer, then the connection ends
        self.seen = []  # of each request: its Range and If-Range

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/folder/data.npz?download=true"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments): ...

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.seen.append((wanted, self.headers.get("If-Range")))
        if "missing" in self.path:
            self.send_error(404)
            return
        start = 0
        if wanted and server.can_resume and self.headers.get("If-Range") in (None, server.etag):
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(server.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        if server.says_length:
            self.send_header("Content-Length", str(len(server.content) - start))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(server.content[start:][: server.breaks_after])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def leave_part(server, folder, size, monkeypatch):
    """What a killed download leaves."""
    server.breaks_after = size
    complaint = rf"the connection ended after {size} bytes, before the file did; give the same command again"
    with monkeypatch.context() as patch:
        patch.setattr(module, "MOST_ATTEMPTS", 1)
        with pytest.raises(CoreshotError, match=complaint):
            download(server.url, folder, DIGEST)
    server.breaks_after = None
    server.seen.clear()
    assert files(folder) == ["data.npz.part", "data.npz.part.json"]


def test_a_whole_file_and_not_twice(server, tmp_path):
    assert download(server.url, tmp_path / "new", DIGEST.upper()) == (tmp_path / "new" / "data.npz", True)
    assert (tmp_path / "new" / "data.npz").read_bytes() == CONTENT
    assert files(tmp_path / "new") == ["data.npz"]
    assert download(server.url, tmp_path / "new", DIGEST) == (tmp_path / "new" / "data.npz", False)
    assert server.seen == [(None, None)]


def test_it_goes_on_where_it_stopped(server, tmp_path, monkeypatch):
    leave_part(server, tmp_path, 20_000, monkeypatch)
    assert download(server.url, tmp_path, DIGEST)[1]
    assert (tmp_path / "data.npz").read_bytes() == CONTENT
    assert server.seen == [("bytes=20000-", '"one"')]
    assert files(tmp_path) == ["data.npz"]


def test_a_server_that_breaks_off_again_and_again(server, tmp_path):
    server.breaks_after = 20_000
    assert download(server.url, tmp_path, DIGEST)[1]
    assert [wanted for wanted, _ in server.seen] == [None, "bytes=20000-", "bytes=40000-"]
    assert (tmp_path / "data.npz").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_sends_all_of_it_again(server, tmp_path, monkeypatch):
    server.can_resume = False
    leave_part(server, tmp_path, 20_000, monkeypatch)
    assert download(server.url, tmp_path, DIGEST)[1]
    assert len(server.seen) == 1
    assert (tmp_path / "data.npz").read_bytes() == CONTENT


def test_a_file_that_has_changed_is_not_glued_to_its_former_self(server, tmp_path, monkeypatch):
    server.content, server.etag = b"x" * 50_000, '"zero"'
    leave_part(server, tmp_path, 20_000, monkeypatch)
    server.content, server.etag = CONTENT, '"one"'
    assert download(server.url, tmp_path, DIGEST)[1]
    assert server.seen == [("bytes=20000-", '"zero"')]
    assert (tmp_path / "data.npz").read_bytes() == CONTENT


def test_a_weak_etag_is_not_asked_for(server, tmp_path, monkeypatch):
    server.etag = 'W/"one"'
    leave_part(server, tmp_path, 20_000, monkeypatch)
    assert download(server.url, tmp_path, DIGEST)[1]
    assert server.seen == [("bytes=20000-", None)]


def test_a_part_that_is_already_whole(server, tmp_path, monkeypatch):
    leave_part(server, tmp_path, 20_000, monkeypatch)
    (tmp_path / "data.npz.part").write_bytes(CONTENT)
    assert download(server.url, tmp_path, DIGEST)[1]
    assert server.seen == [("bytes=50000-", '"one"')]


def test_a_part_that_is_longer_than_the_file_is_begun_anew(server, tmp_path, monkeypatch):
    leave_part(server, tmp_path, 20_000, monkeypatch)
    (tmp_path / "data.npz.part").write_bytes(CONTENT + b"more")
    assert download(server.url, tmp_path, DIGEST)[1]
    assert (tmp_path / "data.npz").read_bytes() == CONTENT


def test_a_part_of_another_address_is_begun_anew(server, tmp_path):
    (tmp_path / "data.npz.part").write_bytes(b"something else")
    assert download(server.url, tmp_path, DIGEST)[1]
    assert server.seen == [(None, None)]
    assert files(tmp_path) == ["data.npz"]


def test_a_server_that_does_not_say_the_length(server, tmp_path):
    server.says_length = False
    assert download(server.url, tmp_path, DIGEST)[1]
    assert (tmp_path / "data.npz").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, no_leftovers):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(
        CoreshotError,
        match=rf"data.npz.*: the SHA-256 of what arrived is [0-9a-f]{{64}}, wanted was {DIGEST}; it was removed",
    ):
        download(server.url, no_leftovers, DIGEST)


def test_a_file_that_is_there_is_not_replaced(server, tmp_path):
    (tmp_path / "data.npz").write_bytes(b"mine")
    with pytest.raises(CoreshotError, match=r"data.npz: is already there with another SHA-256"):
        download(server.url, tmp_path, DIGEST)
    assert (tmp_path / "data.npz").read_bytes() == b"mine"
    assert server.seen == []


def test_too_large_for_the_disk(server, no_leftovers, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 49_999})())
    with pytest.raises(CoreshotError, match=r"50000 bytes do not fit on the disk"):
        download(server.url, no_leftovers, DIGEST)


def test_no_such_file_and_no_such_server(server, no_leftovers):
    with pytest.raises(CoreshotError, match=r"missing.npz.*: the server answers 404 Not Found; check the address"):
        download(server.url.replace("data", "missing"), no_leftovers, DIGEST)
    with pytest.raises(
        CoreshotError, match=r"127.0.0.1:1/a.npz: no answer \(.*refused.*\); check the address and the network"
    ):
        download("http://127.0.0.1:1/a.npz", no_leftovers, DIGEST)


@pytest.mark.parametrize(
    "url",
    [
        "data.npz",
        "file:///etc/passwd",
        "http://here.org/",
        "http://here.org/..",
        "https:///a.npz",
        "http://here.org/%2Fa",
    ],
)
def test_what_is_no_address(url, no_leftovers):
    with pytest.raises(CoreshotError, match="not the address of a file"):
        download(url, no_leftovers, DIGEST)


def test_what_is_no_checksum(no_leftovers):
    with pytest.raises(CoreshotError, match="a SHA-256 has 64 hexadecimal digits, this has 5 characters"):
        download("http://here.org/a.npz", no_leftovers, "12345")
