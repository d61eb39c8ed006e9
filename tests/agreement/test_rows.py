"""Which rows are compared."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slow  # ms-swift is imported


def trainer(rows, limit=100, processes=1, process=0):
    """Rows as (images, tokens); None tokens: the template raises."""

    def encode(inputs):
        if inputs is None:
            raise OSError("cannot identify image file <_io.BytesIO object at 0x7f76>")
        return {"input_ids": [1] * inputs}

    return SimpleNamespace(
        colocated=limit is not None,
        train_dataset=[{"images": ["a.png"] * images, "tokens": n} for images, n in rows],
        request_config=SimpleNamespace(max_tokens=10),
        engine=SimpleNamespace(
            engine=SimpleNamespace(model_config=SimpleNamespace(max_model_len=limit))
        ),
        to_samples=lambda rows: [
            SimpleNamespace(messages=[], to_template_dict=lambda: rows[0]["tokens"])
        ],
        template=SimpleNamespace(encode=encode),
        _template_context=lambda template: nullcontext(),
        accelerator=SimpleNamespace(num_processes=processes, process_index=process),
    )


def chosen_of(trainer, wanted):
    from swift_vlrft.swift_plugin.agreement.rows import choose_rows  # seconds

    return choose_rows(trainer, wanted)


HALF = [(1, 5)] * 4 + [(0, 5)] * 4
CASES = {
    # Rows, how many are wanted, the numbers of those chosen, a token of each note.
    "half of each kind": (HALF, 4, [1, 2, 5, 6], []),
    "an odd number": (HALF, 3, [1, 2, 5], []),
    "one row": ([(0, 5), (1, 5)], 1, [2], []),
    "few texts": (HALF[:5], 4, [1, 2, 3, 5], []),
    "fewer than asked": ([(1, 5), (0, 5)], 1000, [1, 2], []),
    "text alone": ([(0, 5)] * 3, 2, [1, 2], ["image"]),
    "a row that is too long": ([(1, 95), (1, 5)], 2, [2], ["1 of the rows (row 1: 95 tokens"]),
    "no limit known": ([(1, 95), (1, 5)], 2, [1, 2], []),
    "a broken picture": ([(1, 5), (1, None), (1, 5)], 4, [1, 3], ["1 of the rows (row 2: "]),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_chosen(name):
    rows, wanted, expected, notes = CASES[name]
    chosen, said = chosen_of(trainer(rows, None if name == "no limit known" else 100), wanted)
    assert [number for number, _ in chosen] == expected
    assert len(said) == len(notes) and all(a in b for a, b in zip(notes, said, strict=True))
    assert not any("0x" in note for note in said)


@pytest.mark.parametrize(
    ("rows", "text"),
    [([], "--dataset"), ([(1, 95)], "row 1: 95"), ([(1, None)], "row 1: cannot identify")],
)
def test_no_row_is_left(rows, text):
    with pytest.raises(ValueError, match=text):
        chosen_of(trainer(rows), 4)


def test_every_process_has_as_many_rows():
    rows = [(1, 5)] * 3
    shares = [chosen_of(trainer(rows, processes=2, process=n), 3)[0] for n in (0, 1)]
    assert [[number for number, _ in share] for share in shares] == [[1, 2], [3, 1]]
