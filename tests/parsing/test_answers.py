"""What is read from a model's text, case by case."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.box_forms import EMPTY, FORMS

from swift_vlrft.parsing import answers, boxes
from swift_vlrft.parsing.answers import normalise, read, read_boxes, well_formed
from swift_vlrft.rewards import REWARDS

BOX = (254.0, 303.0, 291.0, 365.0)


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>t</think><answer> 4 </answer>", "4"),
        ("<answer>4</answer>", "4"),  # no reasoning at all
        ("<think>maybe <answer>3</answer></think><answer>4</answer>", "4"),  # mentioned only
        ("<think>a</think><answer>3</answer><think>b</think><answer>4</answer>", "4"),
        ("<answer>3</answer> no: <answer>4</answer>", "4"),  # the last one
        ("<answer>4</answer> and <answer>5", "4"),  # the last complete one
        ("<answer>4</answer> </answer>", "4"),
        ("<answer><answer>4</answer></answer>", "4"),  # innermost
        ("<answer></answer>", ""),
        ("<think>so <answer>4</answer></think>", None),  # only in the reasoning
        ("<answer>4", None),
        ("</answer>4<answer>", None),
        ("<ANSWER>4</ANSWER>", None),
        ("4", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_complete_block_after_the_reasoning(completion, expected):
    assert read(completion).text == expected


@pytest.mark.parametrize(
    "completion",
    [
        [{"role": "assistant", "content": "<answer>4</answer>"}],
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": "<answer>4</answer>"}],
        {"role": "assistant", "content": [{"type": "text", "text": "<answer>4</answer>"}]},
    ],
)
def test_chat_messages_are_read_by_their_last_content(completion):
    assert read(completion).text == "4"


@pytest.mark.parametrize("completion", [None, 4, [], [None], [{"role": "assistant"}], b"<answer>4"])
def test_what_is_no_text_has_no_answer(completion):
    assert read(completion).text is None


@pytest.mark.parametrize(
    "text",
    [
        "[{'Position': [254, 303, 291, 365], 'Confidence': 0.9}]",
        '[{"bbox_2d": [254, 303, 291, 365]}]',
        '```json\n[{"bbox": [254, 303, 291, 365]}]\n```',
        'Sure, I don\'t see [more]: [{"box": ["254", "303.0", " 291", "3.65e2"]}] (one).',
        "[{'Position': (254, 303, 291, 365), 'seen': True, 'x': None},]",
        "[{'Position': [254., +303, 291, 365], 'label': 'dog\\'s \"bowl\"'}]",
        '{"bbox_2d": [[254, 303, 291, 365]]}',
        '{"bbox_2d": [[254, 303], [291, 365]]}',
        '{"objects": [{"bbox_2d": [254, 303, 291, 365]}]}',
        "[254, 303, 291, 365]",
        "[[254, 303, 291, 365]]",
        "(254,303),(291,365)",
        "((254, 303), (291, 365))",
        "<254, 303, 291, 365>",
        "{254, 303, 291, 365}",
        "<|begin_of_box|>[[254,303,291,365]]<|end_of_box|>",
        "<|box_start|>(254,303),(291,365)<|box_end|>",
        "<|object_ref_start|>dog<|object_ref_end|><|box_start|>(254,303),(291,365)<|box_end|>",
        "<ref>dog</ref><box>[[254, 303, 291, 365]]</box>",
    ],
)
def test_one_box_in_every_accepted_form(text):
    assert read_boxes(text).boxes == [BOX]


BOX_REWARDS = [n for n, reward in REWARDS.items() if reward.task and reward.task.has_boxes]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_full_marks_as_answer_and_as_gold(form):
    written, plain = (
        form.write([BOX], None),
        "[{'Position': [254, 303, 291, 365], 'Confidence': 1}]",
    )
    for answer, gold in (
        (written, plain),
        (plain, written),
        (plain, f"<answer>{written}</answer>"),
    ):
        completion = f"<think>t</think><answer>{answer}</answer>"
        for name in BOX_REWARDS:
            score = REWARDS[name]([completion], [gold])
            # the two that ask for a confidence pay in full only where one can be said
            unsaid = name in ("vlrft_detection_confidence", "vlrft_paper_confidence")
            unsaid &= read(completion).boxes.confidences == [None]
            assert score == [0.0 if unsaid else 1.0], name


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(derandomize=True, max_examples=40, deadline=None)
@given(data=st.data())
def test_boxes_written_in_any_form_read_back_the_same(form, data):
    start, side = st.integers(-50, 900), st.integers(1, 400) | st.sampled_from([0.5, 12.25, 99.0])
    box = st.builds(lambda x, y, w, h: (x, y, x + w, y + h), start, start, side, side)
    boxes = data.draw(st.lists(box, min_size=1, max_size=4 if form.several else 1))
    name = data.draw(st.sampled_from([None, "dog", "[1, 2, 3, 4]", "a (1,2) b"]))
    found = read_boxes(form.write(boxes, name if form.labelled else None))
    assert found.boxes == boxes
    if form.labelled and name:
        assert found.labels == [normalise(name)] * len(boxes)


@pytest.mark.parametrize("text", EMPTY)
def test_every_form_of_the_empty_set_as_answer_and_as_gold(text):
    for answer, gold in ((text, "No Objects"), ("[]", text), (text, f"<answer>{text}</answer>")):
        completion = f"<think>t</think><answer>{answer}</answer>"
        for name in BOX_REWARDS:
            if REWARDS[name].task.name == "detection":
                assert REWARDS[name]([completion], [gold]) == [1.0], name
            else:
                assert REWARDS[name]([completion], ["[1, 2, 3, 4]"]) == [0.0]


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("<box>1 2 3 4</box><box>5 6 7</box>", [(1, 2, 3, 4), None]),
        ("<box>1 2 3 4 5</box> [1, 2, 3, 4]", [None, (1, 2, 3, 4)]),
        ("<box>dog</box>", [None]),
        ('{"boxes": [[1, 2, 3]]}', [None]),
        ('{"boxes": [[1, 2, 3, 4], null, "x"]}', [(1, 2, 3, 4), None, None]),
        ('{"boxes": 5}', [None]),
        ('{"objects": [{"label": "dog"}]}', [None]),
        ('{"box_2d": [30, 20, 10, 40]}', [None]),  # y2 above y1
        ('{"box_2d": [1, 2, 3, NaN]}', [None]),
        ('{"box_2d": [2, 1, 4, 3], "bbox": [5, 6, 7, 8]}', [(5, 6, 7, 8)]),  # the first key
        ("4, 3, 2, 1", [None]),
        ('{"objects": [], "boxes": [[1, 2, 3, 4]]}', [(1, 2, 3, 4)]),
    ],
)
def test_what_is_wrong_in_a_form_is_an_invalid_box_that_counts(text, boxes):
    assert read_boxes(text).boxes == boxes


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('{"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": ["A dog", null]}', ["a dog", None]),
        ('{"labels": ["a", "b"], "boxes": [[1, 2, 3, 4], [5, 6, 7]]}', ["a", "b"]),
        ('{"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": ["a"]}', [None, None]),
        ('{"boxes": [[1, 2], [3, 4]], "labels": ["a", "b"]}', [None]),  # two corners
        ('{"boxes": [[1, 2, 3, 4], 5], "labels": ["a", "b"]}', [None, None]),
        ('{"boxes": 5, "labels": ["a"]}', [None]),
        ('{"boxes": "none", "labels": []}', []),
        ('{"boxes": [], "labels": [], "scores": []}', []),
    ],
)
def test_labels_beside_boxes_are_theirs_if_there_are_as_many(text, labels):
    assert read_boxes(text).labels == labels


def test_a_wrong_label_beside_boxes_earns_nothing():
    gold = "[{'Position': [1, 2, 3, 4], 'label': 'cat'}]"
    for label, score in (("cat", 1.0), ("dog", 0.0)):
        answer = f'{{"boxes": [[1, 2, 3, 4]], "labels": ["{label}"], "scores": [1]}}'
        for name in ("vlrft_detection_iou", "vlrft_detection_map", "vlrft_detection_confidence"):
            completion = f"<think>t</think><answer>{answer}</answer>"
            assert REWARDS[name]([completion], [gold]) == [score], name


@pytest.mark.parametrize(
    "text", ["1, 2, 3", "1, 2, 3, 4 or 5, 6, 7, 8", "1,000", "boxes: 1, 2, 3, 4", "<box></box>"]
)
def test_bare_numbers_are_a_box_only_as_the_whole_answer(text):
    assert read_boxes(text) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[254, 303, 291, 365] or [1, 2, 3, 4]", 2),
        ("(254,303),(291,365) (1,2),(3,4)", 2),
        ("[[254, 303, 291, 365], [1, 2, 3, 4]]", 2),
        ('[{"bbox": [254, 303, 291, 365]}] and [{"bbox": [1, 2, 3, 4]}]', 2),
        ('{"bbox": [254, 303, 291, 365]}\n{"bbox": [1, 2, 3, 4]}', 2),
        ("No Objects [254, 303, 291, 365]", 1),
    ],
)
def test_every_box_of_an_answer_counts(text, count):
    assert len(read_boxes(text)) == count


def test_a_list_after_much_prose_in_brackets_is_not_searched_for():
    assert read_boxes("[a] " * 60 + "[254, 303, 291, 365]").boxes == [BOX]
    assert read_boxes("[a] " * 70 + "[254, 303, 291, 365]") is None


@pytest.mark.parametrize(
    "position",
    [
        "[1, 2, 3]",
        "[1, 2, 3, 4, 5]",
        "[]",
        "[1, 2, 3, 4, 5, 6, 7, 8]",
        "[291, 303, 254, 365]",  # inverted
        "[254, 303, 254, 365]",  # no area
        "[NaN, 303, 291, 365]",
        "[nan, 303, 291, 365]",
        "[-Infinity, 303, 291, 365]",
        "[254, 303, 291, 1e400]",
        "[254, 303, 291, " + "9" * 5000 + "]",
        "[true, 303, 291, 365]",
        "[True, 303, 291, 365]",
        "[null, 303, 291, 365]",
        '["a", 303, 291, 365]',
        '["NaN", 303, 291, 365]',
        "[0, 0, 1e-200, 1e-200]",  # its area is zero in floats
        '"254, 303, 291, 365"',
        "5",
        "{}",
    ],
)
def test_an_invalid_box_is_a_prediction_without_a_box(position):
    read_as = read_boxes(f'[{{"Position": {position}}}, {{"Position": [254, 303, 291, 365]}}]')
    assert read_as.boxes == [None, BOX]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("0.9", 0.9), ('"0.9"', 0.9), ("1", 1.0), ("0", 0.0)]
    + [
        (bad, None)
        for bad in ("1.01", "-0.1", "NaN", "1e400", "true", "null", '"high"', "[0.9]", '"90%"')
    ],
)
def test_a_confidence_is_a_number_in_0_1(stated, expected):
    read_as = read_boxes(f'[{{"Position": [254, 303, 291, 365], "Confidence": {stated}}}]')
    assert read_as.confidences == [expected]
    assert read_as.boxes == [BOX]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ('"label": "Fire-Hydrant"', "fire hydrant"),
        ('"category": "dog"', "dog"),
        ('"name": "dog"', "dog"),
        ('"label": null, "name": "dog"', "dog"),
        ('"label": ""', None),
        ('"label": 3', "3"),
        ('"label": ["dog"]', answers.read_boxes.__globals__["UNREADABLE_LABEL"]),
    ],
)
def test_labels(stated, expected):
    read_as = read_boxes(f'[{{"Position": [254, 303, 291, 365], {stated}}}]')
    assert read_as.labels == [expected]


@pytest.mark.parametrize(
    "text",
    ["No Objects", "no objects.", "NO OBJECTS!", '"No Objects"', "None", "none", "[]", "[ ]"]
    + ["```json\n[]\n```", "<|begin_of_box|>No Objects<|end_of_box|>"],
)
def test_no_objects_is_the_empty_set(text):
    assert read_boxes(text).boxes == []


@pytest.mark.parametrize(
    "text",
    ["", "null", "5", "no dog here", "None of them", "254, 303, 291, 365, 9", "()", "[dog]", "[1]"]
    + ["[{'Position': [254, 303, 291, 365]}", "[[254, 303, 291, 365], [1, 2", "[254, 303, 291"]
    + [
        "[{'Position': [254, 303, 291, 365], 'label': 'dog's bowl'}]",
        "[{'Position': [254, 303, 291, 365]}}",
    ]
    + ["[{'Position': [a, b, c, d]}]", "[__import__('os')]"],
)
def test_what_is_no_list_is_not_the_empty_set(text):
    assert read_boxes(text) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("African_Grey-Parrot.", " african  grey parrot"),
        ('"tulip".', "tulip"),
        ("**Tulip**", "tulip"),
        ("(A320)", "a320"),
        ("\uff21\uff13\uff12\uff10", "A320"),
        ("STRASSE", "straße"),
        ("'dog's bowl'", "dog's bowl"),
    ],
)
def test_same_name(a, b):
    assert normalise(a) == normalise(b) != ""


@pytest.mark.parametrize(
    ("a", "b"), [("cat", "catfish"), ("not tulip", "tulip"), ("", "x"), ("C", "C#")]
)
def test_other_name(a, b):
    assert normalise(a) != normalise(b)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a\nb</think>\n<answer>3</answer>", True),
        (" \n<think>a</think> <answer>3</answer>\n", True),
        ("<think>I will put <answer></answer> here</think><answer>3</answer>", True),
        ("<think> </think><answer>3</answer>", False),
        ("<think>a</think><answer> </answer>", False),
        ("<think>a</think>, <answer>3</answer>", False),
        ("so <think>a</think><answer>3</answer>", False),
        ("<think>a</think><answer>3</answer>.", False),
        ("<think>a</think><answer>3</answer><answer>4</answer>", False),
        ("<think>a<think>b</think><answer>3</answer>", False),
        ("<think>a</think><think>b</think><answer>3</answer>", False),
        ("<think>a</think><answer><think>3</think></answer>", False),
        ("<think>a</answer>", False),
        ("<answer>3</answer>", False),
        ("", False),
    ],
)
def test_well_formed(text, expected):
    assert well_formed(text) is expected


def test_a_text_is_parsed_once_however_many_rewards_look(monkeypatch):
    parsed = []
    real = boxes.unwrapped
    monkeypatch.setattr(boxes, "unwrapped", lambda text: parsed.append(text) or real(text))
    completions = [f"<think>t</think><answer>[{n}, 0, 991, 1]</answer>" for n in range(40)]
    gold = ["[41, 0, 991, 2]"] * 40
    for name in ("vlrft_detection_iou", "vlrft_detection_confidence", "vlrft_detection_format"):
        REWARDS[name](completions, gold)
    assert len([text for text in parsed if "991, 1]" in text]) == 40
    assert len([text for text in parsed if "991, 2]" in text]) <= 1  # the gold, once per text


def test_the_cache_is_bounded_in_count_and_in_characters():
    for n in range(20_000):
        read(f"<answer>bounded {n}</answer>")
    assert len(answers._cache) <= answers.MAX_CACHED_CHARACTERS / 400
    for n in range(30):
        read(f"<answer>{n}" + "x" * 400_000 + "</answer>")
    assert sum(map(len, answers._cache)) <= answers.MAX_CACHED_CHARACTERS
    assert sum(len(text) + 400 for text in answers._cache) == answers._cached_characters


def test_the_cache_survives_threads():
    def work(k):
        for n in range(2000):
            read(f"<answer>thread {(n * k) % 3000}</answer>")

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(text) + 400 for text in answers._cache) == answers._cached_characters
