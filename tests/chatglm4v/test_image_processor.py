"""Images as the published code prepares them: the same operations of torchvision, to the bit."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from swift_vlrft.chatglm4v.configuration import VISION, ChatGLM4VConfig
from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def picture(mode: str, width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "LA", "CMYK"])
@pytest.mark.parametrize("size", [(640, 480), (1, 1), (3, 500), (112, 112)])
@pytest.mark.parametrize("side", [112, 1120])
def test_the_same_numbers(mode, size, side):
    if side == 1120 and (mode, size) not in (("RGB", (640, 480)), ("P", (3, 500))):
        return  # slow, and the same code
    bicubic = transforms.InterpolationMode.BICUBIC
    published = transforms.Compose(
        [
            transforms.Resize((side, side), interpolation=bicubic),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    processor = ChatGLM4VImageProcessor.of(
        ChatGLM4VConfig(
            vision_config=VISION | {"image_size": side, "num_positions": (side // 14) ** 2 + 1}
        )
    )
    image = picture(mode, *size)
    seen = processor([image], return_tensors="pt")["pixel_values"]
    assert seen.shape == (1, 3, side, side) and seen.dtype == torch.float32
    assert torch.equal(seen[0], published(image.convert("RGB")))
