"""What the page says: the same as the commands, of nothing but what was pasted."""

import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml
from PIL import Image
from support.pictures import data_url, image_file, png_of
from support.swift_run import REPOSITORY
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.rewards import REWARDS
from swift_vlrft.studio import limits
from swift_vlrft.studio.answers import check, plan, why

RECIPE = (REPOSITORY / "recipes/qwen2_5_vl_3b/detection_4x80g.sh").read_text()
SWIFT = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset a/b "
    "--reward_funcs vlrft_format "
)
YAML = "rlhf_type: grpo\nmodel: Qwen/Qwen2-VL-2B-Instruct\n"
ANSWER = "<think>t</think><answer>[{'Position': [100, 200, 500, 800]}]</answer>"
GOLD = "[{'Position': [100, 200, 500, 600]}]"
BOXES = ["vlrft_detection_iou"]


class Page(HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)
        self.text = " ".join("".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.texts.append("" if tag in ("b", "code") else " ")
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def refused(function, *given, **named):
    with pytest.raises(ValueError) as caught:
        function(*given, **named)
    return str(caught.value)


# ---- the same as the commands --------------------------------------------------------------


@pytest.mark.parametrize("gpus", ["4x24", "4xH100"])
def test_the_plan_is_that_of_the_command(gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    file = tmp_path / "recipe.sh"
    file.write_text(RECIPE)
    given = ["plan", str(file), "--gpus", gpus, "--quick", "--answer-tokens", "100"]
    told = CliRunner().invoke(app, given).stdout.replace("recipe.sh", "the script")
    shown = Page(plan(RECIPE, gpus, "100")).text
    for line in told.splitlines():
        for words in re.split(r"\s{2,}", line.strip()):
            assert words in shown, words
    assert len(told.splitlines()) > 30


@pytest.mark.parametrize(
    "script",
    [
        RECIPE,
        RECIPE.replace("--beta", "--betta"),
        RECIPE.replace("num_generations 8", "num_generations 7"),
        SWIFT + "--num_generations many \\\n --scale_rewards sum \\ \n --learning_rate 1",
        SWIFT + "--external_plugins \"$(vlrft plugin)\" --reward_funcs vlrft_nothing 'accurcy'",
        SWIFT + "--external_plugins plugins/vlrft.py --reward_funcs vlrft_nothing",
        SWIFT + '"',
        "if true; then\n" + SWIFT + "\nfi\nA=1 " + SWIFT,
        SWIFT.replace(" --", " \\\r\n --"),
        "{\n" + SWIFT + "\n}",
        "{ " + SWIFT + "; }",
        "MODEL=a:b " + SWIFT,
        YAML + "num_generations: x",
        "# a: b\n\n---\n# c\n" + YAML,
        "%YAML 1.1\n---\n" + YAML,
        "\ufeff" + YAML,
        YAML.replace("rlhf_type", "'rlhf_type'"),
        YAML.replace("rlhf_type", '"rlhf_type"'),
        '\ufeff{"rlhf_type": "grpo", "model": "Qwen/Qwen2-VL-2B-Instruct"}',
        '\n{\n\n  "rlhf_type": "grpo",\n  "model": "Qwen/Qwen2-VL-2B-Instruct"\n}',
        '{"rlhf_type": "grpo", "model": "Qwen/Qwen2-VL-2B-Instruct", "vllm_mode": "colocate"}',
    ],
)
def test_the_findings_are_those_of_the_command(script, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    of = ".yaml" if "rlhf_type: grpo" in re.sub("['\"]", "", script) else ".sh"
    of = ".json" if "{" in script and "}" in script and '"rlhf_type"' in script else of
    file = tmp_path / f"recipe{of}"
    file.write_bytes(script.encode())
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    told = json.loads(done.stdout)
    if told["unreadable"]:
        assert refused(check, script) == told["unreadable"][0].replace(str(file), "script" + of)
        return
    found = [one for one in told["findings"] if one["rule"] != "not-installed"]
    shown = Page(check(script))
    assert max(0, shown.tags.count("tr") - 1) == len(found)
    for one in found:
        row = " ".join(f"{one['line']} {one['level']} {one['text']}".split())
        assert row in shown.text


@pytest.mark.parametrize("name", REWARDS)
def test_the_score_is_that_of_the_reward(name):
    for solution in (GOLD, "3", "No Objects", ""):
        reason = explain(name, ANSWER, solution)
        shown = Page(why([name], "norm1000", ANSWER, solution)).text
        score = "none" if reason.score is None else f"{reason.score:.3f}"
        assert f"{name} {score} {' '.join(reason.text.split())}" in shown


def test_further_columns_are_read():
    given = ["vlrft_number"], "norm1000", "<answer>3.1</answer>", "3"
    assert " 0.000 " in Page(why(*given)).text
    assert " 1.000 " in Page(why(*given, columns='{"tolerance": 0.1}')).text


def test_boxes_lie_where_their_numbers_say():
    image = data_url(image_file((400, 200), "JPEG"))
    shown = why(BOXES, "norm1000", ANSWER, GOLD, image)
    gold = 'class="box gold" style="left:10.00%;top:20.00%;width:40.00%;height:40.00%"'
    answer = 'class="box answer" style="left:10.00%;top:20.00%;width:40.00%;height:60.00%"'
    assert gold in shown and answer in shown
    pixels = why(BOXES, "pixels", ANSWER, GOLD, image, seen="1000 x 2000")
    assert 'class="box gold" style="left:10.00%;top:10.00%;width:40.00%;height:20.00%"' in pixels
    points = why(["vlrft_pointing"], "norm1000", "<answer>[250, 500]</answer>", GOLD, image)
    assert 'class="box answer point" style="left:25.00%;top:50.00%' in points


# ---- nothing of this machine is seen -------------------------------------------------------

LOOKS = {
    "source": "source {0}/secret.sh\n" + SWIFT,
    "dot": ". {0}/secret.sh; " + SWIFT,
    "cd and source": "cd {0} && source secret.sh; " + SWIFT,
    "its folder": "HOME={0}; cd; source secret.sh; " + SWIFT,
    "pushd": "pushd {0}; . ./secret.sh; " + SWIFT,
    "model": SWIFT + "--model {0}/model",
    "model, no reward": "swift sft --model {0}/model --dataset x",
    "fixed images": SWIFT + "--model {0}/glm-4v-9b",
    "adapters": SWIFT + "--adapters {0}/model --resume_from_checkpoint {0}/model",
    "resume": "swift rlhf --rlhf_type grpo --resume_from_checkpoint {0}/model",
    "data": SWIFT + "--dataset {0}/data.jsonl",
    "data set folder": SWIFT + "--dataset {0}:norm1000 --val_dataset {0}/data.jsonl#3",
    "pattern": SWIFT + "--dataset {0}/*.jsonl",
    "plugin": SWIFT + "--external_plugins {0}/plugin.py --reward_funcs secret_reward",
    "plugin folder": SWIFT + "--external_plugins {0} --custom_register_path {0}/plugin.py",
    "deepspeed": SWIFT + "--deepspeed {0}/deepspeed.json",
    "system": SWIFT + "--system {0}/prompt.txt",
    "kwargs": SWIFT + "--model_kwargs {0}/deepspeed.json",
    "columns": SWIFT + "--columns {0}/deepspeed.json",
    "configuration": "swift rlhf {0}/secret.yaml",
    "configuration below": "cd {0}\nswift rlhf secret.yaml",
    "a launcher": "torchrun {0}/swift/cli/rlhf.py --rlhf_type grpo --model {0}/model",
    "substitution": SWIFT + '--system "$(cat {0}/secret.sh)" --seed "$(< {0}/secret.sh)"',
    "where it runs": SWIFT + '--output_dir "$(cd {0} && pwd)/x" --logging_dir "$PWD"',
    "another shell": 'bash -c "source {0}/secret.sh; swift rlhf --model {0}/model"',
    "another file": "bash {0}/secret.sh\n" + SWIFT,
    "yaml": "rlhf_type: grpo\nmodel: {0}/model\ndeepspeed: {0}/deepspeed.json\ndataset: {0}",
}
FILES = {
    "secret.sh": "export SECRET=canary\n",
    "secret.yaml": "rlhf_type: grpo\nsecret_flag: canary\n",
    "data.jsonl": '{"canary": 1}\n',
    "plugin.py": "orms['secret_reward'] = 'swift_vlrft canary'\n",
    "deepspeed.json": '{"zero_optimization": {"stage": 2}, "canary": 1}',
    "prompt.txt": "canary",
    "model/config.json": '{"model_type": "qwen2_5_vl", "canary": 1}',
    "model/args.json": '{"template": "canary"}',
    "glm-4v-9b/config.json": '{"vision_config": {"image_size": 28}}',
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "canary" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "canary" / name).write_text(text)
    return tmp_path / "canary"


@pytest.fixture
def touched(monkeypatch, folder):
    """The paths below the folder that anything is asked of."""
    found = set()

    def watched(name):
        real = getattr(os, name)

        def inner(path=".", *given, **named):
            if isinstance(path, str | os.PathLike) and str(path).startswith(str(folder)):
                found.add(str(path))
            return real(path, *given, **named)

        monkeypatch.setattr(os, name, inner)

    for name in ("stat", "lstat", "scandir", "listdir", "readlink", "access", "open"):
        watched(name)
    opened = io.open

    def inner(file, *given, **named):
        if str(file).startswith(str(folder)):
            found.add(str(file))
        return opened(file, *given, **named)

    monkeypatch.setattr(io, "open", inner)
    monkeypatch.setattr("builtins.open", inner)
    return found


@pytest.mark.parametrize("name", LOOKS)
def test_no_path_in_a_script_is_looked_up(name, folder, touched, monkeypatch):
    script = LOOKS[name].replace("{0}", str(folder))
    monkeypatch.chdir(folder)
    for ask in (check, lambda text: plan(text, "4x80")):
        try:
            shown = ask(script)
        except ValueError as error:
            shown = str(error)
        assert "canary" not in shown.replace(str(folder), "")
    assert not touched


def test_the_commands_do_look_them_up(folder, touched):
    """So the test above sees what is looked up."""
    looked = 0
    for script in LOOKS.values():
        touched.clear()
        try:
            for recipe in read_text(script.replace("{0}", str(folder))):
                check_recipe(recipe)
        except ValueError:
            pass
        looked += bool(touched)
    assert looked >= 20


def test_recipes_are_read_through_one_door():
    """Whoever adds a rule asks files/machine.py, which knows when nothing is to be seen."""
    for room in ("recipe", "families", "memory"):
        for file in (REPOSITORY / "swift_vlrft" / room).rglob("*.py"):
            around = re.findall(r"os\.environ|expanduser|getcwd|Path\.home", file.read_text())
            assert not around, file


@pytest.mark.parametrize(
    "words", ["$HF_TOKEN", "${HF_TOKEN:0:3}", "~", "~root/x", "$HOME/x", "$PWD", "$(pwd)", "~+/x"]
)
def test_no_variable_of_this_process_is_known(words, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setenv("HOME", "/home/canary")
    monkeypatch.setenv("MAX_PIXELS", "12345678")
    shown = check(f"{SWIFT} --system {words} --num_generations {words} --betta {words}")
    shown += plan(f"{SWIFT} --output_dir {words} --use_vllm false", "4x80")
    for secret in ("canary", "12345678", os.getcwd(), os.path.expanduser("~root")):
        assert secret not in shown


def test_nothing_that_is_pasted_is_run(tmp_path):
    mark = tmp_path / "mark"
    for words in (f"$(touch {mark})", f"`touch {mark}`", f"<(touch {mark})", f"; touch {mark}"):
        check(f"touch {mark}; cat > {mark} <<< x\n{SWIFT} --system {words}")
    pickled = f"rlhf_type: !!python/object/apply:os.system ['touch {mark}']"
    assert "constructor" in refused(check, pickled)
    assert not mark.exists()


# ---- awkward input -------------------------------------------------------------------------

BAD_SCRIPTS = {
    "": "paste a script",
    " \n\t": "paste a script",
    "x" * (limits.SCRIPT + 1): "100,001 characters; this page takes 100,000",
    "echo hello": "no `swift rlhf|sft|pt|rollout` or `megatron rlhf` command",
    "import os\nos.system('id')": "no `swift rlhf",
    SWIFT + "'": "line 1: reached EOF without closing quote",
    "if x; then\n" + SWIFT: "line 1: `if` statement must end with `fi`",
    "(" * 5000: "no `swift rlhf",
    "A=aaaaaaaa\n" + "A=$A$A\n" * 60 + SWIFT: "too long a text to be followed",
    "for i in 1 2 3; do " * 12 + SWIFT + "; done" * 12: "too many steps",
    "{": "does not parse",
    "[1]": "no `swift",
    '{"a": ' + "[" * 30000: "does not parse",
    "a: " + "[" * 5000: "does not parse",
    "a: *b": "does not parse",
}


@pytest.mark.parametrize("script", BAD_SCRIPTS, ids=lambda text: repr(text[:20]))
def test_a_script_that_cannot_be_read_gets_one_message(script):
    assert BAD_SCRIPTS[script] in refused(check, script)
    assert BAD_SCRIPTS[script] in refused(plan, script, "4x80")


@pytest.mark.parametrize(
    "script",
    [
        "NPROC_PER_NODE=999999999 " + SWIFT,
        SWIFT + "--num_generations 100000000 --per_device_train_batch_size 99999999999",
        SWIFT + "--system '" + "<a " * 9000 + "'",
        SWIFT + "\0\ud800\u202e",
        "\ufeff" + SWIFT.replace(" --", " \\\r\n --"),
        "f() { f; }; f\n" + SWIFT,
        "swift rlhf " + "--a" * 5000,
    ],
    ids=range(7),
)
def test_odd_scripts_are_checked(script):
    assert "finding" in Page(check(script)).text


@pytest.mark.parametrize(
    ("gpus", "tokens", "says"),
    [
        ("", "", "name the GPUs"),
        ("0x80", "", "--gpus 0x80"),
        ("-1x80", "", "not of the form"),
        ("4x24; rm -rf /", "", "not of the form"),
        ("<b>", "", "not of the form"),
        ("4" * 41, "", "takes 40"),
        ("4x999999999", "", "there is no GPU"),
        ("4x80", "0", "no number from 1"),
        ("4x80", "1e9", "no number from 1"),
        ("4x80", "٣", "no number from 1"),
    ],
)
def test_odd_gpus_get_one_message(gpus, tokens, says):
    assert says in refused(plan, SWIFT + "--use_vllm false", gpus, tokens)


def test_a_model_of_a_hub_is_not_fetched():
    text = refused(plan, SWIFT.replace("Qwen/Qwen2.5-VL-3B-Instruct", "some/model-7b"), "4x80")
    assert "some/model-7b" in text and "nothing is read from a folder or a hub here" in text


HTML = "<script>alert(1)</script><img src=x onerror=alert(1)></pre></table>${alert(1)}{{7*7}}"


def test_what_is_pasted_is_shown_as_text():
    shown = [
        why(["vlrft_classification", "vlrft_ocr"], "norm1000", f"<answer>{HTML}</answer>", HTML),
        why(
            BOXES,
            "norm1000",
            HTML + "<answer>[{'label': '" + HTML + "', 'bbox': [1,2,3,4]}]</answer>",
            GOLD,
            data_url(image_file((20, 20))),
        ),
        check(f"{SWIFT} --system '{HTML}' --num_generations '{HTML}' --{'b' * 9} '{HTML}'"),
        plan(SWIFT + f"--output_dir '{HTML}' --use_vllm false", "4x80"),
    ]
    for page in map(Page, shown):
        assert "script" not in page.tags
        assert not [name for name in page.attributes if name.startswith("on")]
        assert page.tags.count("img") == page.attributes.count("alt")
    assert HTML in Page(shown[0]).text and HTML in Page(shown[2]).text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rewards": []}, "choose a reward"),
        ({"rewards": ["__class__"]}, "unknown reward '__class__'"),
        ({"frame": "xywh"}, "unknown box format"),
        ({"completion": "a" * 10_000_000}, "10,000,000 characters; this page takes 200,000"),
        ({"solution": "a" * 60_000}, "60,000 characters"),
        ({"columns": "[" * 9000}, "not JSON"),
        ({"columns": "[1]"}, "an object is needed"),
        ({"columns": '{"trainer_state": 1}'}, "an object is needed"),
        ({"seen": "0x5"}, "is not like 644x476"),
        ({"seen": "a" * 100}, "is not like 644x476"),
    ],
)
def test_odd_fields_get_one_message(given, says):
    image = data_url(image_file((20, 20)))
    usual = {"rewards": BOXES, "frame": "pixels", "completion": ANSWER, "solution": GOLD}
    assert says in refused(why, **{**usual, "image": image, **given})


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "<answer>" * 25_000,
        "<answer>[" + "[1, 2, 3, 4]," * 15_000 + "]</answer>",
        "<answer>[[NaN, 1e999, -1e300, 4], [1], {}, null]</answer>",
        "<answer>\ud800\x00\u202e</answer>",
        "<answer>" + "9" * 100_000 + "</answer>",
        "</think>" * 20_000,
    ],
    ids=range(7),
)
def test_odd_completions_are_scored(completion):
    assert "vlrft_detection_iou" in why(list(REWARDS), "norm1000", completion, GOLD)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_images_of_every_mode_are_shown(mode):
    image = data_url(image_file((30, 20), "TIFF", mode))
    assert "30 x 20 pixels" in why(BOXES, "norm1000", ANSWER, GOLD, image)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (data_url(png_of(20_000, 20_000)), "more than 40,000,000 pixels"),
        (data_url(png_of(9_000, 9_000)), "more than 40,000,000 pixels"),
        (data_url(image_file((300, 300))[:90]), "broken"),
        (data_url(b""), "cannot be read"),
        (data_url(b"hello"), "cannot be read"),
        (data_url(b"<svg onload='alert(1)'/>"), "cannot be read"),
        (data_url(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n"), "cannot be read"),
        (data_url(b"\0" * 11 * 2**20), "11.0 MiB; this page takes 10 MiB"),
        ("too large:123456789", "117.7 MiB; this page takes 10 MiB"),
        ("too large:<b>", "takes 10 MiB"),
        ("unreadable", "cannot be read"),
        ("/etc/passwd", "cannot be read"),
        ("http://127.0.0.1/x.png", "cannot be read"),
        ("data:image/png;base64,@@@", "sent incompletely"),
    ],
)
def test_an_image_that_cannot_be_shown_gets_one_message(image, says):
    assert says in refused(why, BOXES, "norm1000", ANSWER, GOLD, image)


def test_a_photograph_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (40, 20)).save(file, "JPEG", exif=exif)
    assert "20 x 40 pixels" in why(BOXES, "norm1000", ANSWER, GOLD, data_url(file.getvalue()))


def test_the_answers_need_no_gradio():
    code = "import sys, swift_vlrft.studio.worker; print('gradio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_the_files_of_a_space_agree_with_the_package():
    folder = REPOSITORY / "examples" / "studio"
    head = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    pinned = (REPOSITORY / "requirements" / "cpu.txt").read_text().splitlines()
    assert f"{head['sdk']}=={head['sdk_version']}" in pinned
    assert (folder / head["app_file"]).is_file() and len(head["short_description"]) <= 60
    assert (folder / "requirements.txt").read_text() == "swift-vlrft[studio]\n"


def test_without_gradio_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr("swift_vlrft.commands.studio.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["studio"])
    assert done.exit_code == 2 and 'pip install "swift-vlrft[studio]"' in done.stderr
