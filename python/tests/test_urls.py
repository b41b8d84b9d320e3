"""Inputs by URL, from a web server of the standard library that sends parts of files. `tests/remote` has more."""

import functools
import http.server
import multiprocessing
import os
import pickle
import re
import signal
import threading

import numpy as np
import pytest

import overshot as ov


class Handler(http.server.SimpleHTTPRequestHandler):
    """Sends the range of a file that is asked for."""

    def do_GET(self):
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        with open(self.translate_path(self.path), "rb") as file:
            body = file.read()
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{min(last + 1, len(body)) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body[first : last + 1])))
        # As `HEAD` has it.
        self.send_header("Last-Modified", self.date_time_string(int(self.server.folder.stat().st_mtime)))
        self.end_headers()
        self.wfile.write(body[first : last + 1])

    def do_HEAD(self):
        if "silent" in self.path:
            # The test waits for the answer now.
            os.kill(os.getpid(), signal.SIGINT)
            return self.server.has_ended.wait()
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.send_header("Last-Modified", self.date_time_string(int(self.server.folder.stat().st_mtime)))
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def url(tmp_path):
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))
    ) as server:
        server.folder = tmp_path
        server.has_ended = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.has_ended.set()
        server.shutdown()


def test_files_of_a_server_are_inputs(evaluate, tmp_path, url):
    x = np.arange(600_000.0).reshape(-1, 3)
    np.save(tmp_path / "x.npy", x)
    x[:, 0].astype("f4").tofile(tmp_path / "x.f32")
    file = ov.open(f"{url}/x.npy")
    assert (file.path, file.shape, file.dtype) == (f"{url}/x.npy", x.shape, np.float64)
    np.testing.assert_array_equal(evaluate("x * 2", x=f"{url}/x.npy"), x * 2)
    np.testing.assert_array_equal(evaluate("x * 2", x=pickle.loads(pickle.dumps(file))), x * 2)
    assert evaluate("max(x)", x=ov.open(f"{url}/x.f32", "f4")) == x[:, 0].max()


def test_what_is_not_there_is_an_error_with_the_url(url):
    with pytest.raises(OSError, match=re.escape(f"{url}/none.npy: cannot be opened")):
        ov.open(f"{url}/none.npy")
    with pytest.raises(OSError, match="is a URL, and outputs are files"):
        ov.evaluate("y = x", x=np.zeros(3), out={"y": f"{url}/y.npy"})


def _sum(queue, url):
    queue.put(float(ov.evaluate("sum(x)", x=url, device="cpu")))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_process_that_is_forked_has_connections_of_its_own(tmp_path, url):
    x = np.arange(1000.0)
    np.save(tmp_path / "x.npy", x)
    assert ov.evaluate("sum(x)", x=f"{url}/x.npy", device="cpu") == x.sum()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_sum, args=(queue, f"{url}/x.npy"))
    child.start()
    assert queue.get(timeout=300) == x.sum()
    child.join()
    assert child.exitcode == 0


def test_a_server_that_never_answers_is_left_by_an_interrupt(url):
    # A shell that starts a program in the background makes it ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        ov.open(f"{url}/silent.npy")
