"""The start models of `vlrft try`: each learns a set's format with a vocabulary of its own."""

import json
import random

import pytest

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import stored
from swift_vlrft.demo.warm_start import GUESS, LOOK, write_lessons
from swift_vlrft.families import family_of
from swift_vlrft.tiny.compact import COMPACT
from tests.support.drawn_rows import boxed_rows


@pytest.fixture
def data(tmp_path):
    write_folder(tmp_path / "set", {"train": map(stored, boxed_rows(random.Random(0), 24))})
    return tmp_path / "set"


@pytest.mark.slow
@pytest.mark.parametrize("family", COMPACT)
def test_the_random_model_of_every_family_opens_with_the_ids_of_its_own_vocabulary(
    family, data, tmp_path
):
    from swift.model import get_model_processor
    from swift.template import get_template

    from swift_vlrft import register

    start = write_lessons(family, data, tmp_path, 8, side=112)
    assert start.longest <= 40 and start.left_out == 0 and start.parameters < 3e6
    folder = tmp_path / "random"
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    assert text["vocab_size"] < 4096
    assert family_of(name=str(folder)) is not None, "as `swift sft --model` knows it"
    register([], model_type=family)
    model, processor = get_model_processor(str(folder), torch_dtype=None)
    template = get_template(processor)
    picture = boxed_rows(random.Random(1), 1)[0].image
    if family in ("glm4v", "glm46v"):  # which do not read MAX_PIXELS
        picture = picture.resize((640, 480))
    prompt = {"messages": [{"role": "user", "content": "<image>Find."}], "images": [picture]}
    ids = template.encode(prompt)["input_ids"]
    assert max(ids) < text["vocab_size"], "no id of the real vocabulary is left"
    assert 1 < ids.count(model.config.image_token_id) < 100, "a large picture is seen small"


@pytest.mark.slow
def test_a_guess_is_the_answer_of_another_row_and_more_frequent_at_the_end(data, tmp_path):
    write_lessons("internvl", data, tmp_path, 400, side=112)
    lines = (tmp_path / "lessons.jsonl").read_text().splitlines()
    answers = [json.loads(line)["messages"][-1]["content"] for line in lines]
    guesses = [answer.startswith(GUESS) for answer in answers]
    assert all(
        guess or answer.startswith(LOOK) for guess, answer in zip(guesses, answers, strict=True)
    )
    assert sum(guesses[:300]) < 0.35 * 300 and sum(guesses[300:]) > 0.65 * 100
