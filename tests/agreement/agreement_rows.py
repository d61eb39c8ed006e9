"""Rows of a comparison."""

from swift_vlrft.agreement.measurement import Row


def row(engine, trainer, **more):
    values = {"place": "row 1", "images": 0, "prompt": [1], "asked": [1]} | more
    texts = [f"t{i}" for i in range(max(len(engine), len(trainer)))]
    return Row(texts=texts, engine=engine, trainer=trainer, **values)
