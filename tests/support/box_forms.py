"""Every form in which a model or a data set may write boxes (docs/reference/rewards.md, "How an answer is read")."""

# ruff: noqa: E501 - rows of a table stay on one line

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Boxes = Sequence[Sequence[float]]


@dataclass
class Form:
    name: str
    write: Callable[[Boxes, str | None], str]
    several: bool = True
    labelled: bool = False

    def __str__(self) -> str:
        return self.name


def _objects(key: str, name: str = "label", confidence: str | None = None):
    def make(boxes: Boxes, label: str | None) -> list[dict]:
        def corners(b: Sequence[float]) -> list[float]:
            return [b[1], b[0], b[3], b[2]] if key == "box_2d" else list(b)

        return [
            {key: corners(b)}
            | ({name: label} if label is not None else {})
            | ({confidence: 1} if confidence else {})
            for b in boxes
        ]

    return make


def _pairs(b: Sequence[float]) -> str:
    return "({},{}),({},{})".format(*b)


def _lists(boxes: Boxes) -> str:
    return json.dumps([list(b) for b in boxes])


_virft, _qwen, _google = (
    _objects("Position", "label", "Confidence"),
    _objects("bbox_2d"),
    _objects("box_2d"),
)

FORMS = [
    Form("ViRFT", lambda bs, name: repr(_virft(bs, name)), labelled=True),
    Form("JSON bbox_2d", lambda bs, name: json.dumps(_qwen(bs, name)), labelled=True),
    Form("bbox, category, score", lambda bs, n: str(_objects("bbox", "category", "score")(bs, n)), labelled=True),
    Form("box, name", lambda bs, name: json.dumps(_objects("box", "name")(bs, name)), labelled=True),
    Form("Google's box_2d, y-first", lambda bs, name: json.dumps(_google(bs, name)), labelled=True),
    Form("one box_2d", lambda bs, name: repr(_google(bs, name)[0]), several=False, labelled=True),
    Form("box_2d in objects", lambda bs, name: json.dumps({"objects": _google(bs, name)}), labelled=True),
    Form("numbers in quotes", lambda bs, n: json.dumps([{"bbox_2d": [str(v) for v in b]} for b in bs])),
    Form("one object", lambda bs, name: json.dumps(_qwen(bs, name)[0]), several=False, labelled=True),
    Form("objects", lambda bs, name: json.dumps({"objects": _virft(bs, name)}), labelled=True),
    Form("one of objects", lambda bs, n: repr({"objects": _qwen(bs, n)[0]}), several=False, labelled=True),
    Form("boxes", lambda bs, name: f'{{"boxes": {_lists(bs)}}}'),
    Form("boxes beside labels and scores", lambda bs, n: json.dumps({"boxes": [list(b) for b in bs], "labels": [n] * len(bs), "scores": [1] * len(bs)}), labelled=True),
    Form("one of boxes", lambda bs, name: f"{{'boxes': {list(bs[0])}}}", several=False),
    Form("boxes of objects", lambda bs, name: json.dumps({"boxes": _qwen(bs, name)}), labelled=True),
    Form("list of lists", lambda bs, name: _lists(bs)),
    Form("tuples", lambda bs, name: str([tuple(b) for b in bs])),
    Form("one list", lambda bs, name: str(list(bs[0])), several=False),
    Form("bare numbers", lambda bs, name: "{}, {}, {}, {}".format(*bs[0]), several=False),
    Form("bare numbers in a fence", lambda bs, n: "```\n{},{},{},{}\n```".format(*bs[0]), several=False),
    Form("corner pairs", lambda bs, name: " ".join(map(_pairs, bs))),
    Form("tags", lambda bs, name: "".join("<box>{} {} {} {}</box>".format(*b) for b in bs)),
    Form("tags with commas", lambda bs, name: "\n".join("<box>{}, {}, {}, {}</box>".format(*b) for b in bs)),
    Form("tags with lists", lambda bs, name: " and ".join(f"<box>[{list(b)}]</box>" for b in bs)),
    Form("one tag with all", lambda bs, name: f"<box>{_lists(bs)}</box>"),
    Form("GLM", lambda bs, name: f"<|begin_of_box|>{_lists(bs)}<|end_of_box|>"),
    Form("GLM, bare, no commas", lambda bs, n: "<|begin_of_box|>{} {} {} {}<|end_of_box|>".format(*bs[0]), several=False),
    Form("GLM, bare", lambda bs, n: "It is <|begin_of_box|>{}, {}, {}, {}<|end_of_box|>.".format(*bs[0]), several=False),
    Form("Qwen", lambda bs, name: "".join(f"<|box_start|>{_pairs(b)}<|box_end|>" for b in bs)),
    Form("Qwen, bare", lambda bs, name: "".join("<|box_start|>{},{},{},{}<|box_end|>".format(*b) for b in bs)),
    Form("Qwen, named", lambda bs, name: "".join(
        f"<|object_ref_start|>the dog<|object_ref_end|><|box_start|>{_pairs(b)}<|box_end|>" for b in bs)),
    Form("InternVL", lambda bs, name: f"<ref>the dog</ref><box>{_lists(bs)}</box>"),
    Form("a JSON fence", lambda bs, name: f"```json\n{json.dumps(_qwen(bs, name), indent=2)}\n```", labelled=True),
    Form("a fence in prose", lambda bs, name: f"Sure:\n```json\n{{\"boxes\": {_lists(bs)}}}\n```\nDone."),
    Form("prose", lambda bs, name: f"I see them at {_virft(bs, name)}, I think.", labelled=True),
]  # fmt: skip
"""``write(boxes, label)``; x-first boxes, a label where ``labelled``."""

EMPTY = ["No Objects", "no objects.", "NONE", "`No Objects`", "[]", '{"objects": []}', "{'boxes': ()}"] + [
    '```json\n{"boxes": []}\n```', "```\nNo Objects\n```", "<|begin_of_box|>[]<|end_of_box|>",
    "No objects found.", "There are no dogs in the image.", "null", "{}", '[{"bbox_2d": []}]', "无", "没有目标。",
]  # fmt: skip
