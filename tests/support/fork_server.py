"""A Python that has imported torch, ms-swift, vLLM and DeepSpeed, and forks for every run.

    python -P fork_server.py SOCKET OWNER

Importing them takes about ten seconds of a core, and an end-to-end test starts two to six such
processes. What is real: the command (`bash recipe.sh`, `swift`, torchrun and its ranks), the files
it runs, its arguments, environment, folder, pipes, signals, exit status, and a process of its own
for every rank. What is not: the libraries were imported before. A process is forked only where no
variable that they read while being imported differs (`trainer_site/fork_client.py` starts another
server for it; what it leaves out, OF_A_RUN, none of them may read), and nothing of this repository
is imported before the fork. README's command, with vLLM on two ranks under ZeRO-3, runs without it
(``plain=True``).
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

IMPORTED = (
    *("torch", "torch.distributed.run", "transformers", "swift.cli.main", "swift.cli.utils"),
    *("swift.pipelines.train.rlhf", "swift.rlhf_trainers.grpo_trainer", "swift.infer_engine"),
    *("vllm", "vllm._custom_ops", "vllm.v1.worker.cpu_worker", "vllm.v1.engine.llm_engine"),
    *(
        f"vllm.model_executor.models.{name}"
        for name in ("qwen2_5_vl", "qwen3_5", "glm4_1v", "glm4v")
    ),
    *("transformers.tokenization_mistral_common", "peft", "datasets"),
    *("deepspeed", "matplotlib.pyplot", "torch.utils.tensorboard"),
)
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
# Read at import, and put right after the fork: the level of two loggers, the folders of a test, and
# how often a folder is in a path.
PUT_RIGHT = {
    *("MODELSCOPE_CACHE", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "TORCHINDUCTOR_CACHE_DIR"),
    *("LOCAL_RANK", "PATH", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"),
}


@contextlib.contextmanager
def environment_reads() -> Iterator[set[str]]:
    """The names of the environment's variables that are read meanwhile, whether they are set or
    not.
    """
    kind: Any = type(os.environ)
    real = kind.__getitem__
    names: set[str] = set()

    def getitem(environ: Any, name: Any) -> Any:
        names.add(name)
        return real(environ, name)

    kind.__getitem__ = getitem
    try:
        yield names
    finally:
        kind.__getitem__ = real


class Request:
    """One process to be: its arguments, environment, folder, and the three files it was given."""

    def __init__(self, connection: socket.socket) -> None:
        text, self.files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        while not text.endswith(b"\n"):
            text += connection.recv(1 << 20)
        request = json.loads(text)
        self.arguments: list[str] = request["arguments"]
        self.environment: dict[str, str] = request["environment"]
        self.folder: str = request["folder"]

    def become(self, changes: dict[str, str]) -> None:
        """Make this process the one that was asked for, up to its first line."""
        import logging

        import datasets
        import numpy
        from huggingface_hub import constants

        os.setsid()
        for number, file in enumerate(self.files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        name = self.arguments[self.arguments[0] == "-m"]
        if not name.endswith(("torch.distributed.run", "/bin/swift", "/bin/vlrft")):
            # These do not import what makes them.
            os.environ.update({n: v for n, v in changes.items() if n not in PUT_RIGHT})
        if "HF_HUB_CACHE" in self.environment:
            datasets.config.HF_DATASETS_CACHE = self.environment["HF_DATASETS_CACHE"]
            constants.HF_HUB_CACHE = self.environment["HF_HUB_CACHE"]
        for received in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(received, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        numpy.random.seed()
        if int(self.environment.get("LOCAL_RANK") or 0) > 0:
            for name in ("swift", "modelscope"):
                logging.getLogger(name).setLevel(logging.ERROR)
        sys.orig_argv = [sys.executable, *self.arguments]

    def run(self) -> None:
        import runpy

        import sitecustomize

        sitecustomize.before_swift()  # Python itself has come by there before the fork

        first, *rest = self.arguments
        if first == "-m":
            sys.argv = rest
            sys.path.insert(0, self.folder)
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *rest]
            sys.path.insert(0, os.path.dirname(first))
            runpy.run_path(first, run_name="__main__")


class Server:
    def __init__(self, path: str, owner: int) -> None:
        self.owner = owner
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path + ".binding")
        self.listener.listen(64)
        os.rename(path + ".binding", path)  # there once it answers
        self.chosen = selectors.DefaultSelector()
        self.chosen.register(self.listener, selectors.EVENT_READ)
        self.running: dict[int, socket.socket] = {}

    def serve(self) -> Request | None:
        """Answer until the owner is gone; in a fork, the request it is for."""
        while _alive(self.owner) or self.running:
            for key, _ in self.chosen.select(0.02 if self.running else 1):
                if key.fileobj is self.listener:
                    request = self.accept()
                    if request:
                        return request
                else:
                    self.forward(key.fileobj)  # type: ignore[arg-type]
            self.reap()
        return None

    def accept(self) -> Request | None:
        connection, _ = self.listener.accept()
        request = Request(connection)
        child = os.fork()
        if child == 0:
            # A fork must not outlive a killed server: it would hold pipes that others wait on.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            self.chosen.close()
            for open_one in (self.listener, connection, *self.running.values()):
                open_one.close()
            return request
        for file in request.files:
            os.close(file)
        self.running[child] = connection
        self.chosen.register(connection, selectors.EVENT_READ)
        return None

    def forward(self, connection: socket.socket) -> None:
        """A signal that the waiting process got; at its end, the end of the forked one."""
        child = next(pid for pid, known in self.running.items() if known is connection)
        received = connection.recv(1)
        if not received:
            self.chosen.unregister(connection)
        with contextlib.suppress(ProcessLookupError):
            if received:
                os.kill(child, received[0])
            else:
                os.killpg(child, signal.SIGKILL)

    def reap(self) -> None:
        for child in list(self.running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                connection = self.running.pop(child)
                with contextlib.suppress(KeyError):
                    self.chosen.unregister(connection)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                connection.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    import gc

    path, owner = sys.argv[1], int(sys.argv[2])
    before = dict(os.environ)
    with environment_reads() as names:
        for name in IMPORTED:
            try:
                importlib.import_module(name)
            except ImportError:  # without vLLM, say
                traceback.print_exc()
    if "vllm" in sys.modules:  # it imports all anew to ask what a model can, lest CUDA begins
        registry: Any = importlib.import_module("vllm.model_executor.models.registry")
        registry._run_in_subprocess = lambda ask: ask()
    from fork_client import is_of_a_run

    if wrong := {name for name in map(os.fsdecode, names) if is_of_a_run(name)} - PUT_RIGHT:
        sys.exit(f"imports read {', '.join(wrong)}: take it out of OF_A_RUN")
    changes = {n: v for n, v in os.environ.items() if before.get(n) != v}
    gc.collect()
    gc.freeze()
    print(f"ready after {time.process_time():.1f} s", flush=True)
    request = Server(path, owner).serve()
    if request:
        request.become(changes)
        _end(request.run)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def _end(run: Callable[[], None]) -> None:
    """Run it, then end as Python does, but leave Python's memory to the system: freeing it object
    by object would first copy what is shared with the server.
    """
    import atexit
    import threading

    code: Any = 0
    try:
        run()
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code & 0xFF)  # vLLM's C++ removes its shared memory there


if __name__ == "__main__":
    main()
