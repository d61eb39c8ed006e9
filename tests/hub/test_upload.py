"""What the hubs' own SDKs send to a recording hub on loopback, and what is said where it takes
nothing.
"""

import json
import os
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import pytest
from support.finished_run import tensors, write_run
from support.hub_server import FORBIDDEN, TOKEN, UNREACHABLE, hub_environment, running_hub
from support.written_sets import row

from swift_vlrft.datasets.writer import write_folder

pytestmark = pytest.mark.slow

SHORT = {"hf": "hf", "modelscope": "ms"}
SHARD = "data/train-00000-of-00001.parquet"
# In one process: the SDKs read their addresses when they are imported, which takes seconds.
RUN = r"""
import json, sys
from swift_vlrft.cli import app
for words in json.loads(sys.argv[1]):
    try:
        app(words)
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            print(f"\0{end.code}\0", file=stream, end="", flush=True)
"""


@pytest.fixture(params=["hf", "modelscope"])
def sent(request, to_hubs):
    return to_hubs(request.param)


@pytest.fixture(scope="module")
def to_hubs(tmp_path_factory):
    """Sends once to each hub, in whatever order tests ask for it."""
    return cache(lambda name: sent_to(name, tmp_path_factory.mktemp("upload")))


def sent_to(name, folder):
    """A hub, and exit code, stdout and stderr of every command."""
    write_folder(folder / "shapes", {"train": [row(i) for i in range(30)]})
    (folder / "shapes" / "private-notes.txt").write_text("stays here")
    demo = write_run(folder / "runs" / "demo")
    before = sorted((folder / "shapes").rglob("*"))
    push = f"data push {folder}/shapes --hub {name} --repo me/"
    commands = {
        "set": f"{push}shapes --private --license cc-by-4.0 --json",
        "again": f"{push}shapes",
        FORBIDDEN: f"{push}{FORBIDDEN}",
        UNREACHABLE: f"{push}{UNREACHABLE}",
        "model": f"publish {demo}/grpo --hub {SHORT[name]} --to me/model --json --private",
    }
    with running_hub() as hub:
        words = json.dumps([command.split() for command in commands.values()])
        env = {**os.environ, **hub_environment(hub.url, folder)}
        run = [sys.executable, "-c", RUN, words]
        done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert sorted((folder / "shapes").rglob("*")) == before  # nothing is left in the folder
    said, errors = (stream.split("\0") for stream in (done.stdout, done.stderr))
    answers = zip(map(int, said[1::2]), said[::2], errors[::2], strict=False)
    of = dict(zip(commands, answers, strict=True))
    return SimpleNamespace(name=name, folder=folder, hub=hub, of=of)


def test_a_set_and_its_card_arrive_and_nothing_else(sent):
    code, said, errors = sent.of["set"]
    assert code == 0, errors
    dataset = f"{SHORT[sent.name]}::me/shapes"
    assert json.loads(said) == {"page": f"{sent.hub.url}/datasets/me/shapes", "dataset": dataset}
    repo = sent.hub.repos["me/shapes"]
    assert repo.private and set(repo.files) == {"README.md", SHARD}
    assert repo.files[SHARD] == (sent.folder / "shapes" / SHARD).read_bytes()
    assert repo.licence == ("cc-by-4.0" if sent.name == "modelscope" else None)
    assert sent.of["again"][0] == 0  # onto what is there: a new commit, no error


def test_of_a_model_what_belongs_arrives_and_nothing_else(sent):
    code, said, errors = sent.of["model"]
    assert code == 0, errors
    page = "me/model" if sent.name == "hf" else "models/me/model"
    assert json.loads(said)["page"] == f"{sent.hub.url}/{page}"
    repo = sent.hub.repos["me/model"]
    assert repo.private and set(repo.files) == {
        *("README.md", "config.json", "generation_config.json", "preprocessor_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json", "args.json"),
    }
    assert repo.files["model.safetensors"] == tensors()
    kept = {"swift_version", "tuner_type", "model_type", "template", "system"}
    assert json.loads(repo.files["args.json"]).keys() == kept
    told = b"\n".join(repo.files.values())
    assert str(sent.folder).encode() not in told
    for text in ("/home/me/runs", "/data/of", "hf_abc", "swan-lab", "hooks.", "key-of-mi"):
        assert text.encode() not in told + (said + errors).encode(), text
    assert repo.licence == (None if sent.name == "hf" else "other")  # none that nobody stated


def test_the_token_is_sent_and_neither_kept_nor_printed(sent):
    assert {token for _, _, token in sent.hub.requests if token} == {f"Bearer {TOKEN}"}
    files = [file for file in sent.folder.rglob("*") if file.is_file()]
    files += [content for repo in sent.hub.repos.values() for content in repo.files.values()]
    for file in files:
        content = file if isinstance(file, bytes) else file.read_bytes()
        assert TOKEN.encode() not in content, file
    errors = sent.of[FORBIDDEN][2]  # whose answer repeats it
    assert sent.name in errors and "[token]" in errors
    for name in (FORBIDDEN, UNREACHABLE):
        code, _, errors = sent.of[name]
        assert code == 1 and f"me/{name}" in errors and "Traceback" not in errors
