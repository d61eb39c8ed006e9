"""Categories that are trained or tested together, by the name that ``--categories`` takes.

coco-novel15    airplane, bear, cat, fork, ...
virft-coco8     bus, train, fire hydrant, stop sign, cat, dog, bed, toilet
"""

from __future__ import annotations

# The 80 things of COCO (cocodataset.org), in the order of their ids.
COCO80 = (
    *("person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"),
    *("traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat"),
    *("dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack"),
    *("umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball"),
    *("kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket"),
    *("bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple"),
    *("sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair"),
    *("couch", "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse"),
    *("remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator"),
    *("book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"),
)

# Visual-RFT, coco_evaluation/Qwen2_VL_coco_infere.py, "15 new classes"; the 65/15 split of
# zero-shot detection (Rahman et al., Polarity Loss for Zero-shot Object Detection).
COCO_NOVEL15 = (
    *("mouse", "fork", "hot dog", "cat", "airplane", "suitcase", "parking meter", "sandwich"),
    *("train", "hair drier", "toilet", "toaster", "snowboard", "frisbee", "bear"),
)

# The others are the base classes: what ViRFT_COCO_base65 holds (Visual-RFT, README).
COCO_BASE65 = tuple(name for name in COCO80 if name not in COCO_NOVEL15)

# Visual-RFT, coco_evaluation/Qwen2_VL_coco_infere.py, "few-shot experiment: 8 classes".
VIRFT_COCO8 = ("bus", "train", "fire hydrant", "stop sign", "cat", "dog", "bed", "toilet")

# Visual-RFT, lvis_evaluation/Qwen2_VL_lvis_infere.py, "few-shot experiment: 6 classes".
LVIS_RARE6 = ("horse_buggy", "die", "kitchen_table", "omelet", "papaya", "stepladder")

# The same file, "open vocabulary experiment: 13 classes".
LVIS_RARE13 = (
    *("casserole", "die", "egg_roll", "futon", "garbage", "handsaw", "hippopotamus"),
    *("kitchen_table", "mallet", "omelet", "shot_glass", "stepladder", "sugar_bowl"),
)

CATEGORY_LISTS: dict[str, tuple[str, ...]] = {
    "coco80": COCO80,
    "coco-base65": COCO_BASE65,
    "coco-novel15": COCO_NOVEL15,
    "virft-coco8": VIRFT_COCO8,
    "lvis-rare6": LVIS_RARE6,
    "lvis-rare13": LVIS_RARE13,
}
