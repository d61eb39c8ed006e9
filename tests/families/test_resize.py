"""Resize rules against the processors that ms-swift calls."""

import itertools
import json
import os
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.swift_run import run_python

from swift_vlrft.families import image_rule
from swift_vlrft.families.resize import capped_size

# width, height: usual ones, tiny ones, long ones, and ties of the rounding.
SIZES = [
    (640, 480), (1, 1), (14, 14), (28, 28), (42, 42), (56, 20), (100, 7), (2000, 11), (111, 577),
    (1500, 2000), (5000, 40), (70, 126), (1288, 728),
]  # fmt: skip
SIDES = st.integers(1, 1500)
LIMITS = [(None, None), (None, 100_352), (200_704, 401_408), (3136, 12_544)]


def grid_of(processor, image):
    """Width and height of the pixels that a processor lays its patches over."""
    (grid,) = processor(images=[image], return_tensors="pt")["image_grid_thw"].tolist()
    return grid[2] * 14, grid[1] * 14


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_qwen_sees_what_qwen_vl_utils_makes_and_the_processor_counts(low, high, monkeypatch):
    import qwen_vl_utils.vision_process as vision
    from transformers import Qwen2VLImageProcessor

    processor = Qwen2VLImageProcessor(do_resize=False)  # as ms-swift's template calls it
    stated = {"MIN_PIXELS": low, "MAX_PIXELS": high}
    environ = {name: str(value) for name, value in stated.items() if value}
    limits = image_rule("qwen2_5_vl").limits(environ=environ)
    monkeypatch.setattr(vision, "IMAGE_MIN_TOKEN_NUM", low // 784 if low else 4)
    monkeypatch.setattr(vision, "IMAGE_MAX_TOKEN_NUM", high // 784 if high else 16384)
    for size in SIZES if high else SIZES[:9]:  # those that stay small without a limit
        if high and max(size) > high * min(size) / 784:
            continue  # qwen-vl-utils itself makes a side of 0 pixels here
        image = vision.fetch_image({"image": Image.new("RGB", size)}, image_patch_size=14)
        width, height = grid_of(processor, image)
        for family in ("qwen2_vl", "qwen2_5_vl"):
            rule = image_rule(family).within(*limits)
            assert rule.size(*size) == image.size == (width, height)
            assert rule.tokens(*size) == width * height // 28**2


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.integers(1, 6000),
    st.integers(1, 6000),
    st.sampled_from(["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "glm46v"]),
    st.sampled_from([(3136, 12_845_056), (12_544, 401_408), (200_704, 1_003_520)]),
)
def test_the_rule_agrees_with_the_published_functions(width, height, family, limits):
    from qwen_vl_utils.vision_process import smart_resize
    from transformers.models.glm4v import image_processing_glm4v as glm
    from transformers.models.glm46v import image_processing_glm46v as glm46

    low, high = limits
    if max(width, height) > 190 * min(width, height) or high // 20 < max(width, height):
        return
    if family.startswith("glm"):
        module = glm if family == "glm4v" else glm46
        published = module.smart_resize(2, height, width, min_pixels=low, max_pixels=high)
    else:
        factor = image_rule(family).factor
        published = smart_resize(height, width, factor, min_pixels=low, max_pixels=high)
    seen = image_rule(family).within(low, high).size(width, height)
    assert seen == (published[1], published[0])


@pytest.mark.slow
def test_limits_come_from_where_ms_swift_reads_them(tmp_path):
    """Against ms-swift's own functions, in a process of their own: they write into globals."""
    code = """
import json, os
from swift.model.models.qwen import compat_qwen_vl_utils
for patch in (14, 16):
    for name in ("IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM"):
        os.environ.pop(name, None)
    compat_qwen_vl_utils(image_patch_size=patch)
    tokens = [int(os.environ[f"IMAGE_{name}_TOKEN_NUM"]) for name in ("MIN", "MAX")]
    print(json.dumps([count * (2 * patch) ** 2 for count in tokens]))
"""
    environ = {"MAX_PIXELS": "1003521", "MIN_PIXELS": "5000"}
    done = run_python(code, **environ)
    assert done.returncode == 0, done.stderr[-2000:]
    for family, line in zip(
        ("qwen2_5_vl", "qwen3_vl"), done.stdout.strip().splitlines()[-2:], strict=True
    ):
        assert image_rule(family).limits(environ=environ) == tuple(json.loads(line))
    stated = {"IMAGE_MAX_TOKEN_NUM": "256", "MAX_PIXELS": "9"}
    assert image_rule("qwen2_5_vl").limits(environ=stated)[1] == 256 * 784
    with pytest.raises(ValueError, match="MAX_PIXELS=1e6"):
        image_rule("qwen2_vl").limits(environ={"MAX_PIXELS": "1e6"})
    size = {"shortest_edge": 12544, "longest_edge": 401408, "height": 56, "width": 56}
    config = {"size": size, "max_patches": 6}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    assert image_rule("glm4v").limits(model=tmp_path, environ=environ) == (12544, 401408)
    assert image_rule("glm4v").limits(environ=environ) == (12544, 9633792)
    assert image_rule("internvl").limits(model=tmp_path) == (56**2, 6 * 56**2)


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.one_of(
        st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
        st.tuples(st.integers(1, 24), st.integers(1, 24)).map(lambda s: (s[0] * 112, s[1] * 112)),
    ),
    st.sampled_from([1, 2, 4, 6, 12]),
)
def test_tiles_are_those_of_the_published_function(size, most):
    from transformers import GotOcr2ImageProcessor

    processor = GotOcr2ImageProcessor(size={"height": 448, "width": 448}, max_patches=most)
    tiles = processor.get_number_of_image_patches(size[1], size[0], {"crop_to_patches": True})
    rule = image_rule("internvl").within(max_pixels=most * 448**2)
    assert rule.parts(*size) == [(448, 448)] * tiles
    assert rule.tokens(*size) == 256 * tiles
    assert tiles <= len(rule.parts(*rule.largest()))


@pytest.mark.slow
@settings(max_examples=200)
@given(SIDES | st.integers(1, 40_000), SIDES, st.sampled_from([70, 140, 280, 560, 1120]))
def test_gemma_4_sees_what_the_processor_makes(width, height, budget):
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    rule = image_rule("gemma4").within(budget * 48**2, budget * 48**2)
    size = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    assert rule.size(width, height) == size[::-1]
    assert rule.tokens(width, height) <= budget == rule.tokens(*rule.largest())


@pytest.mark.slow
def test_the_flag_max_pixels_scales_as_ms_swift_does():
    from swift.template.vision_utils import rescale_image

    for size, limit in itertools.product(SIZES, (None, 0, 50_000, 1_000_000)):
        if min(size) > 1:
            assert capped_size(*size, limit) == rescale_image(Image.new("RGB", size), limit).size


@pytest.mark.parametrize(
    ("family", "size", "limits", "said"),
    [
        ("llava", (10, 10), {}, "'llava'; known: qwen2_5_vl"),
        ("qwen2_vl", (10, 10), {"max_pixels": 10}, "max_pixels 10"),
        ("qwen2_vl", (10_000, 10), {}, "200 times"),
    ],
)
def test_sizes_and_limits_that_no_processor_takes(family, size, limits, said):
    with pytest.raises(ValueError, match=said):
        image_rule(family).within(**limits).size(*size)


def test_limits_are_of_the_environment_as_it_is_now(monkeypatch):
    """After a map in several processes `datasets` leaves a copy in the place of os.environ."""
    monkeypatch.setattr(os, "environ", deepcopy(os.environ))
    monkeypatch.setenv("MAX_PIXELS", "401408")
    assert image_rule("qwen2_5_vl").limits()[1] == 401408
