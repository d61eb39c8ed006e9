"""What chat templates write around a turn and in place of an image, in any family: a prompt of a
set holds none of it, since ms-swift's template writes its own.

    <|vision_start|> <|image_pad|> <image|> <img> <IMG_CONTEXT> <start_of_turn> [INST] </s>

What a prompt may name is left alone: thoughts, answers, boxes, points, references, tools.
"""

import re

_ANSWER = "(?:begin_of_|end_of_)?(?:box|object_ref|ref|quad|point)"
_WORDS = (
    *("img", "video", "audio", "image_id", "slice", "IMG_CONTEXT", "image_soft_token"),
    *(r"(?:start|end)_of_(?:image|turn|audio|utterance)", r"(?:image|audio|video)_placeholder"),
    *("image_start", "image_end", "vision_start", "vision_end", "fake_token_around_image"),
    *("im_start", "im_end", "im_patch", "bos", "eos", "s", "sop", "eop"),
)
_MARK = re.compile(
    rf"<\|(?!{_ANSWER})[^|<>\s]{{1,40}}\|?>|<(?!{_ANSWER})\w{{1,40}}\|>|<｜[^<>\s]{{1,40}}｜>"
    rf"|</?(?:{'|'.join(_WORDS)})>|</image>|\[/?INST\]|<</?SYS>>|\[IMG(?:_\w+)?\]|\[[gs]MASK\]"
)


def first_mark(text: str) -> str | None:
    """Return the first such mark in a text, but for ms-swift's ``<image>``; None without one."""
    found = _MARK.search(text)
    return None if found is None else found[0]
