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

from swift_vlrft.swift_plugin.faults import Faults

pytestmark = pytest.mark.slow  # ms-swift is imported


@contextmanager
def answering(status, keys):
    """As `swift rollout` answers (pipelines/infer/rollout.py: get_model_state_keys)."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/get_model_state_keys/" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": keys}).encode())

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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


class SwiftsTrainer:
    def _move_model_to_vllm(self, skip_async_check=False):
        return "sent"


class Trainer(Faults, SwiftsTrainer):
    pass


@pytest.mark.parametrize(
    ("server", "asynchronous", "wrong"),
    [
        (answering(200, ["lm_head.weight"]), False, ""),
        (answering(404, []), False, ""),  # of another version: not ours to judge
        (answering(200, []), False, "engine"),
        (answering(500, []), False, "engine"),
        (silent(), False, "0.2 seconds"),
        (silent(), True, ""),  # it answers somebody else's question first
        (gone(), False, "any more"),
        (nullcontext(), False, ""),  # a colocated engine, or another rank
    ],
)
def test_no_weights_are_sent_to_a_server_that_is_gone(server, asynchronous, wrong):
    with server as url, answering(200, ["lm_head.weight"]) as good:
        seconds = 0.2 if "seconds" in wrong else 60
        trainer = Trainer()
        trainer.args = SimpleNamespace(vllm_server_timeout=seconds, async_generate=asynchronous)
        trainer.vllm_client = SimpleNamespace(base_urls=[good, url]) if url else None
        with pytest.raises(ConnectionError) if wrong else nullcontext() as error:
            assert trainer._move_model_to_vllm(skip_async_check=True) == "sent"
    if wrong:
        assert url in str(error.value) and wrong in str(error.value)
        assert good not in str(error.value)
