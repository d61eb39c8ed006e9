"""What is said of a rollout server that is not there, over real sockets.

tests/end_to_end/test_faults_processes.py kills real ones.
"""

import json
import socket
import threading
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from swift_vlrft.swift_plugin.rollout_server import ask_before_each_sync, what_is_wrong


@contextmanager
def answering(status, keys):
    """As `swift rollout` answers (pipelines/infer/rollout.py: get_model_state_keys)."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/get_model_state_keys/" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": keys}).encode())

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def silent():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def gone():
    with silent() as url:
        pass
    yield url


def client(*urls):
    return SimpleNamespace(base_urls=urls)


@pytest.mark.parametrize(
    ("server", "wrong"),
    [
        (answering(200, ["lm_head.weight"]), ""),
        (answering(404, []), ""),  # of another version: not ours to judge
        (answering(200, []), "engine"),
        (answering(500, []), "engine"),
        (silent(), "0.2 seconds"),
        (gone(), "any more"),
    ],
)
def test_what_is_wrong_with_a_server(server, wrong):
    with server as url, answering(200, ["lm_head.weight"]) as good:
        said = what_is_wrong(client(good, url), 0.2 if "seconds" in wrong else 60)
    assert (url in said) == bool(wrong) and wrong in said and good not in said


@pytest.mark.parametrize(
    ("server", "asynchronous", "outcome"),
    [
        (answering(200, ["lm_head.weight"]), False, nullcontext()),
        (nullcontext(), False, nullcontext()),  # a colocated engine, or another rank
        (silent(), True, nullcontext()),  # it answers somebody else's question first
        (gone(), False, pytest.raises(ConnectionError)),
    ],
)
def test_no_weights_are_sent_to_a_server_that_is_gone(server, asynchronous, outcome):
    with server as url:
        trainer = SimpleNamespace(
            args=SimpleNamespace(vllm_server_timeout=60, async_generate=asynchronous),
            vllm_client=client(url) if url else None,
            _move_model_to_vllm=lambda **_: "sent",
        )
        ask_before_each_sync(trainer)
        with outcome:
            assert trainer._move_model_to_vllm(skip_async_check=True) == "sent"
