"""Render recipes: recipes/template.sh.jinja with the fields of recipes/recipes.toml.

script = scripts()["qwen2_5_vl_3b/detection_4x80g"]
script.text("peak 61.2 GiB of 80 per GPU in backward (vlrft plan)")        as it is shipped
script.with_flags({"deepspeed": "zero2", "MAX_PIXELS": "200704"}).text()
"""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from swift_vlrft.files.shipped import shipped_file


@dataclass(frozen=True)
class Script:
    """The fields of one script, as bash reads them; empty ones leave a line out."""

    name: str
    title: str
    model: str
    output: str
    gpus: str  # As --gpus takes it
    variables: dict[str, list[str] | str]
    """Default and remark of an exported variable; the value of one that is not exported."""
    flags: dict[str, str]
    header: dict[str, str]
    dataset: str = ""
    dataset_needed: str = ""  # What the caller is asked for without a ``dataset``
    rewards: str = ""  # The default of the variable REWARDS
    task: str = ""  # Only of a script that a new recipe may begin with

    def with_flags(self, flags: Mapping[str, str]) -> Self:
        """Return the script with these values; names in capitals are variables, "" leaves out."""
        words = {name: shlex.quote(value) if value else "" for name, value in flags.items()}
        variables = {name: word and [word] for name, word in words.items() if name.isupper()}
        named = {name: word for name, word in words.items() if not name.isupper()}
        return replace(self, variables={**self.variables, **variables}, flags=self.flags | named)

    def text(self, memory: str = "") -> str:
        """Return the text of the script; ``memory`` is the peak that its header states."""
        from jinja2 import Environment, StrictUndefined

        shell = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
        template = shell.from_string(shipped_file("recipes", "template.sh.jinja").read_text())
        return template.render(vars(self), memory=memory)


def scripts() -> dict[str, Script]:
    """Return the scripts of recipes/recipes.toml by their names."""
    table = tomllib.loads(shipped_file("recipes", "recipes.toml").read_text())
    read = {}
    for name, recipe in table["recipes"].items():
        fields: dict[str, Any] = {}
        presets = (table["presets"][preset] for preset in recipe.pop("like"))
        for part in (table["all"], *presets, recipe):
            for key, value in part.items():
                fields[key] = fields.get(key, {}) | value if isinstance(value, dict) else value
        read[name] = Script(name, **fields)
    return read
