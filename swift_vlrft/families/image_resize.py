"""Say how a command shows images to its model: the family's resize rule under the command's limits.

ImageResize("qwen2_5_vl", 3136, 1_003_520).size(640, 480)   (644, 476)
"""

from dataclasses import dataclass

from swift_vlrft.families import image_rule
from swift_vlrft.families.resize import ImageRule, capped_size
from swift_vlrft.geometry.box_format import Size


@dataclass(frozen=True)
class ImageResize:
    """A model's family and the limits of the command decide how its images are resized."""

    family: str
    min_pixels: int
    max_pixels: int
    picture_pixels: int | None = None
    """ms-swift's flag ``--max_pixels``, which scales the image before the family's resize."""

    def size(self, width: int, height: int) -> Size:
        return self._rule.size(*capped_size(width, height, self.picture_pixels))

    def problem(self, width: int, height: int) -> str | None:
        """Say why the model's processor rejects an image of that size; None if it does not."""
        try:
            self.size(width, height)
        except ValueError as error:
            return str(error)
        width, height = capped_size(width, height, self.picture_pixels)
        if not self._rule.loses_a_side(width, height):
            return None
        return (
            f"an image of {width} x {height} pixels is left with a side of 0 pixels under "
            f"max_pixels {self.max_pixels}; raise MAX_PIXELS, or crop the image"
        )

    def tokens(self, width: int, height: int) -> int:
        """Count the image's tokens, with those that mark its begin and end."""
        shown = capped_size(width, height, self.picture_pixels)
        return self._rule.tokens(*shown) + self._rule.marks(*shown)

    @property
    def _rule(self) -> ImageRule:
        return image_rule(self.family).within(self.min_pixels, self.max_pixels)
