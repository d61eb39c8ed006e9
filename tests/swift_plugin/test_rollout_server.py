"""What is said of a rollout server that is not there, over real sockets.

tests/end_to_end/test_faults_processes.py kills real ones.
"""

import json
import socket
import threading
from contextlib import contextmanager
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
    ("server", "said"),
    [
        (answering(200, ["lm_head.weight"]), ""),
        (answering(404, []), ""),  # of another version: not ours to judge
        (answering(200, []), " answers, but its engine has ended"),
        (answering(500, []), " answers, but its engine has ended"),
        (silent(), " has not answered for 0.2 seconds"),
        (gone(), " does not answer any more"),
    ],
)
def test_what_is_wrong_with_a_server(server, said):
    with server as url, answering(200, ["lm_head.weight"]) as good:
        found = what_is_wrong(client(good, url), 0.2)
    assert found.startswith(f"the rollout server at {url}{said}") if said else found == ""


def test_no_weights_are_sent_to_a_server_that_is_gone():
    def trainer(url, asynchronous=False):
        args = SimpleNamespace(vllm_server_timeout=0.2, async_generate=asynchronous)
        synced = SimpleNamespace(
            args=args, vllm_client=client(url) if url else None, _move_model_to_vllm=lambda **_: 1
        )
        ask_before_each_sync(synced)
        return synced

    with answering(200, ["lm_head.weight"]) as url:
        assert trainer(url)._move_model_to_vllm(skip_async_check=True) == 1
    assert trainer(None)._move_model_to_vllm() == 1  # a colocated engine, or another rank
    with silent() as url:  # it answers somebody else's question first
        assert trainer(url, True)._move_model_to_vllm() == 1
    with gone() as url, pytest.raises(ConnectionError, match="does not answer any more"):
        trainer(url)._move_model_to_vllm(skip_async_check=True)
