"""`vlrft publish`: what goes up, what the card says, and what is refused."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.command_line import vlrft
from support.finished_run import write_checkpoint, write_evaluation, write_run
from support.written_sets import digests

from swift_vlrft.hub.cards import model_files
from swift_vlrft.hub.checkpoint import open_checkpoint
from swift_vlrft.recipe.facts import facts

BASE, ARGS = "Qwen/Qwen3-VL-2B-Instruct", "args.json"
TABLE = list(map(json.loads, Path(__file__).with_name("publish.jsonl").open()))


def cases(of):
    rows = [row for row in TABLE if row["of"] == of]
    return pytest.mark.parametrize("case", rows, ids=lambda row: row["why"])


@pytest.fixture
def demo(tmp_path):
    return write_run(tmp_path / "runs" / "demo")


def publish(*arguments, hub="hf", code=0, **variables):
    """Its stdout and stderr, each in one line."""
    words = ["publish", "--repo", "me/shapes", "--hub", hub, *map(str, arguments)]
    done = vlrft(*words, **variables)
    assert done.exit_code == code, done.output
    return " ".join(done.stdout.split()), " ".join(done.stderr.split())


def refusal(*arguments, **more):
    return publish(*arguments, code=2, **more)[1]


def card_of(demo, tmp_path, *arguments):
    publish(demo / "grpo", "--card-only", tmp_path / "card", *arguments)
    text = (tmp_path / "card" / "README.md").read_text()
    shutil.rmtree(tmp_path / "card")
    return text


def evaluations(demo, before="before", after="after"):
    return f"--before={demo / 'eval' / before}", f"--after={demo / 'eval' / after}"


def test_the_card_says_what_ran_and_what_came_of_it(demo, tmp_path):
    text = card_of(demo, tmp_path, "--license", "apache-2.0", *evaluations(demo))
    data = ModelCard(text).data
    assert data.license == "apache-2.0" and data.library_name == "transformers"
    assert data.datasets == ["laolao77/ViRFT_COCO_base65"]
    row = re.search(r"^\| accuracy \| (.*) \| (.*) \|$", text, re.M).groups()
    assert [cell.split(" ")[0] for cell in row] == ["0.300", "0.900"]
    assert all(re.search(r" \([\d.]+ to [\d.]+\)", cell) for cell in row)
    assert (
        "`checkpoint-20`, trained on `shapes:pixels#500`, `hf::laolao77/ViRFT_COCO_base65`." in text
    )
    assert "| `vlrft_format` | 0.5 |" in text and "--learning_rate 1e-06\n" in text
    after = card_of(demo, tmp_path, evaluations(demo)[1])
    assert re.search(r"^\| accuracy \| 0\.900 \(", after, re.M) and "| before " not in after
    bare = card_of(demo, tmp_path)
    assert ModelCard(bare).data.license is None and "not been evaluated" in bare


@cases("base")
def test_the_base_model_is_known_by_its_id(tmp_path, case):
    names = {"model": case["model"], "model_dir": case["directory"]}
    folder = write_checkpoint(tmp_path / "checkpoint-1", **names)
    assert open_checkpoint(folder).base == case["known"]


@pytest.mark.parametrize(
    ("hub", "page", "adapter"),
    [
        ("hf", "huggingface.co", None),
        ("hf", "huggingface.co", "/home/me/start"),
        ("modelscope", "modelscope.cn/models", "/home/me/start"),
    ],
)
def test_it_names_a_model_that_others_have_and_its_commands_are_right(tmp_path, hub, page, adapter):
    run = write_run(tmp_path / "demo", adapter=adapter, max_pixels=602112) / "grpo"
    opened = open_checkpoint(run, BASE)
    text = model_files(opened, hub, "me/shapes")["README.md"].decode()
    if adapter:
        assert "--base-model ORG/NAME" in refusal(run, "--card-only", tmp_path / "card")
        assert opened.files.keys() == {"adapter_config.json", "adapter_model.safetensors", ARGS}
        assert json.loads(opened.files[ARGS])["model"] == BASE
        assert json.loads(opened.files["adapter_config.json"])["base_model_name_or_path"] == BASE
        data = ModelCard(text).data
        assert data.library_name == "peft" and data.base_model == BASE
        assert f"](<https://{page}/{BASE}>)" in text
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    programs = ("swift ", "hf ", "modelscope ", "vlrft ")
    download, infer, evaluation = [shlex.split(x) for x in lines if x.startswith(programs)]
    assert infer[:2] == ["swift", "infer"] and len(infer) % 2 == 0
    flags = dict(zip(infer[2::2], infer[3::2], strict=True))
    known = facts().flags("infer")
    assert {name.removeprefix("--") for name in flags} <= known.keys()
    model = {"--model": BASE, "--adapters": "shapes"} if adapter else {"--model": "shapes"}
    assert flags.items() >= {"--max_pixels": "602112", "--template": "internvl_hf", **model}.items()
    assert ("export USE_HF=1" in text) == (hub == "hf")
    assert download[-1] == "shapes" and download[0] == hub
    assert evaluation == ["vlrft", "eval", "shapes", "SET", "--task", "TASK"]


# ---- what is refused ---------------------------------------------------------------------------


@cases("whole")
def test_a_checkpoint_that_is_not_whole_is_refused(demo, tmp_path, case):
    file, content = demo / "grpo" / "checkpoint-20" / case["file"], case["content"]
    whole = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(whole[:-3] if content == "cut" else content.encode())
    assert case["said"] in refusal(file.parent, "--card-only", tmp_path / "card")
    assert not (tmp_path / "card").exists()


@pytest.mark.parametrize("may_go_up", [True, False])
def test_what_must_not_go_up_is_refused_by_name(demo, may_go_up):
    """All of it in one list; no secret is shown, and no file is changed."""
    folder = demo / "grpo" / "checkpoint-20"
    rows = [r for r in TABLE if r["of"] == "content" and (r["said"] is None) == may_go_up]
    for row in rows:
        file, content = folder / row["file"], row["content"]
        if not isinstance(content, str):
            content = json.dumps(json.loads(file.read_text()) | content)
        file.write_text(content)
    before = digests(folder)
    if may_go_up:
        args = json.loads(model_files(open_checkpoint(folder), "hf", "me/x")[ARGS])
        assert args["system"] == json.loads((folder / ARGS).read_text())["system"]
        return
    said = refusal(folder, HF_TOKEN="x")
    assert [row["why"] for row in rows if row["said"] not in said] == []
    assert "Zq81" not in said and "hf_abc" not in said and digests(folder) == before


@pytest.mark.slow
def test_what_is_no_checkpoint_no_hub_and_no_name_is_refused(demo, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "empty", "file"):
        assert str(tmp_path / name) in refusal(tmp_path / name)
    assert "HF_TOKEN is" in refusal(demo / "grpo", HF_TOKEN="")
    assert "--hub github" in refusal(demo / "grpo", hub="github")
    names = [row for row in TABLE if row["of"] == "name"]
    said = [(row, refusal(demo / "grpo", row["flag"], row["value"])) for row in names]
    assert [row["why"] for row, line in said if row["value"] not in line] == []


def test_a_card_replaces_nothing(demo, tmp_path):
    told = json.loads(publish(demo / "grpo", "--card-only", tmp_path / "new", "--json")[0])
    assert told["card"] == str(tmp_path / "new" / "README.md") and told["sent"] is False
    assert {"README.md", "model.safetensors"} <= set(told["files"])
    for place in (demo / "grpo" / "checkpoint-20", tmp_path / "new"):
        before = digests(place)
        assert "new folder" in refusal(demo / "grpo", "--card-only", place)
        assert digests(place) == before


def test_evaluations_of_others_are_refused(demo, tmp_path):
    data = demo / "data" / "held_out"
    (tmp_path / "other").mkdir()
    for name, model, on, more in (
        ("model", demo / "grpo" / "checkpoint-10", data, {}),
        ("set", demo / "start", tmp_path / "other", {}),
        ("split", demo / "start", data, {"split": "train"}),
    ):
        write_evaluation(demo / "eval" / name, model, on, 5, **more)
    for given, said in [
        (evaluations(demo, after="model"), "checkpoint-10"),
        (evaluations(demo, before="set"), "is not of the rows"),
        (evaluations(demo, before="split"), "is not of the rows"),
        (evaluations(demo)[:1], "--after None"),
        (evaluations(demo, after="nowhere"), "summary.json"),
    ]:
        assert said in refusal(demo / "grpo", *given, "--card-only", tmp_path / "card")


def test_the_last_checkpoint_of_a_run_that_was_moved_is_published(demo, tmp_path):
    write_checkpoint(demo / "grpo" / "checkpoint-9", model=str(demo / "start"))
    shutil.move(demo, tmp_path / "elsewhere" / "demo")
    moved = tmp_path / "elsewhere" / "demo"
    assert "| accuracy | 0.300" in card_of(moved, tmp_path, *evaluations(moved))
