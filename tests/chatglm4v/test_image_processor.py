"""Images as the published code prepares them: the same operations of torchvision, to the bit."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from swift_vlrft.chatglm4v.configuration import VISION, ChatGLM4VConfig
from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor

pytestmark = pytest.mark.slow  # torch is imported

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@pytest.mark.parametrize(
    ("mode", "size", "side"),
    [
        *(("RGB", (640, 480), 112), ("RGB", (640, 480), 1120), ("P", (3, 500), 1120)),
        *(("L", (1, 1), 112), ("RGBA", (3, 500), 112), ("1", (112, 112), 112)),
        *(("LA", (640, 480), 112), ("CMYK", (1, 1), 112)),
    ],
)
def test_the_same_numbers(mode, size, side):
    bicubic = transforms.InterpolationMode.BICUBIC
    published = transforms.Compose(
        [
            transforms.Resize((side, side), interpolation=bicubic),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    places = {"image_size": side, "num_positions": (side // 14) ** 2 + 1}
    processor = ChatGLM4VImageProcessor.of(ChatGLM4VConfig(vision_config=VISION | places))
    colours = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    image = Image.fromarray(colours).convert(mode)
    seen = processor([image], return_tensors="pt")["pixel_values"]
    assert seen.shape == (1, 3, side, side) and seen.dtype == torch.float32
    assert torch.equal(seen[0], published(image.convert("RGB")))
