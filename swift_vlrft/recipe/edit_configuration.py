"""Where a change stands in a YAML or JSON configuration: comments, order and quotes are kept.

    num_generations: 8   # as in the paper        ENV:
    model: "m"                                      MAX_PIXELS: 401408

Only the key or the value in question is written anew; a new key goes behind the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from swift_vlrft.recipe.patch import PLAIN, Patch
from swift_vlrft.recipe.rules.finding import Edit, Variable, added_flag

Pair = tuple[yaml.Node, yaml.Node]


@dataclass(frozen=True, slots=True)
class _Table:
    """A mapping of the file and the manner in which its keys are written."""

    text: str
    node: yaml.MappingNode
    as_json: bool

    def find(self, name: str, line: int | None = None) -> Pair | None:
        """The last key of that name, dashes or not; of a line, where one is given."""
        found = [
            (key, value)
            for key, value in self.node.value
            if str(key.value).replace("-", "_") == name and line in (None, key.start_mark.line + 1)
        ]
        return found[-1] if found else None

    def value(self, values: Sequence[str], old: yaml.Node | None = None) -> str:
        """As a value of this file; a number stays a string where it was one."""
        words = [self._scalar(value, old) for value in values]
        return words[0] if len(words) == 1 else f"[{', '.join(words)}]"

    def _scalar(self, value: str, old: yaml.Node | None) -> str:
        style = old.style if isinstance(old, yaml.ScalarNode) else None
        if value.startswith("{") and not style:
            return value  # an object, in JSON and in YAML
        if style in ("'", '"') and PLAIN.fullmatch(value):
            return f"{style}{value}{style}"
        if not self.as_json and PLAIN.fullmatch(value) and not value.endswith(":"):
            return value
        try:
            json.loads(value)
        except ValueError:
            return json.dumps(value, ensure_ascii=False)
        return value if not style else json.dumps(value)

    def replaced(self, pair: Pair, values: Sequence[str]) -> Iterator[list[Patch]]:
        key, node = pair
        start, end = node.start_mark.index, _end(node)
        if start < key.end_mark.index:  # an alias: the node stands where its anchor is
            match = re.compile(r"\s*:\s*(\*\S+)").match(self.text, key.end_mark.index)
            if match is None:
                return
            start, end = match.span(1)
        new = self.value(values, node)
        if start == end:  # `name:` without a value
            new = f" {new}"
        yield [(start, end, new)]

    def dropped(self, pair: Pair) -> list[Patch]:
        """Its lines with their remark; in a table of one line the comma too."""
        start, end = pair[0].start_mark.index, max(pair[0].end_mark.index + 1, _end(pair[1]))
        if comma := re.compile(r"\s*,").match(self.text, end):
            end = comma.end()
        elif self.node.flow_style and (before := re.search(r",\s*\Z", self.text[:start])):
            return [(before.start(), end, "")]
        line, stop = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", end)
        stop = len(self.text) if stop < 0 else stop + 1
        alone = not self.text[line:start].strip()
        if alone and re.fullmatch(r"\s*(#.*)?\s*", self.text[end:stop]):
            return [(line, stop, "")]
        blanks = re.compile(r"[ \t]*").match(self.text, end)
        return [(start, blanks.end() if blanks else end, "")]

    def added(self, name: str, value: str, after: Pair | None = None) -> list[Patch]:
        key, node = after or self.node.value[-1]
        at = max(key.end_mark.index + 1, _end(node))
        line = self.text.rfind("\n", 0, key.start_mark.index) + 1
        indent = self.text[line : key.start_mark.index]
        stop = self.text.find("\n", at)
        stop = len(self.text) if stop < 0 else stop
        new_line = "\r\n" if self.text[:stop].endswith("\r") else "\n"
        written = (
            f'"{name}": {value}' if self.as_json or self.node.flow_style else f"{name}: {value}"
        )
        if self.node.flow_style:
            between = f"{new_line}{indent}" if not indent.strip() and line else " "
            return [(at, at, f",{between}{written}")]
        if self.text[:at].endswith("\n"):  # behind a block of text
            return [(at, at, f"{indent}{written}{new_line}")]
        stop -= self.text[:stop].endswith("\r")
        return [(stop, stop, f"{new_line}{' ' * len(indent)}{written}")]


def configuration_patches(text: str, as_json: bool, edit: Edit | Variable) -> Iterator[list[Patch]]:
    """The ways to write a change; nothing where the text is no table."""
    blanks = text.replace("\t", " ") if as_json else text  # as the reader does
    root = yaml.compose(blanks, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or not root.value:
        return
    table = _Table(text, root, as_json)
    if isinstance(edit, Variable):
        yield from _variable(table, edit)
        return
    pair = table.find(edit.flag, edit.line)
    if pair is None:
        if edit.line is None and edit.values is not None:
            yield table.added(edit.flag, table.value(edit.values))
        return
    if edit.drop:
        yield table.dropped(pair)
    elif edit.values is not None:
        yield from table.replaced(pair, edit.values)
    elif edit.name:
        key = pair[0]
        raw = text[key.start_mark.index : key.end_mark.index]
        quote = raw[0] if raw[0] in "'\"" else ""
        yield [(key.start_mark.index, key.end_mark.index, f"{quote}{edit.name}{quote}")]
    elif edit.add:
        name, values = added_flag(edit.add)
        yield table.added(name, table.value(values), pair)


def _variable(table: _Table, edit: Variable) -> Iterator[list[Patch]]:
    pair = table.find("ENV")
    value = table.value([edit.value])
    if pair is None:
        flow = table.as_json or table.node.flow_style
        inner = f'{{"{edit.name}": {value}}}' if flow else f"{{{edit.name}: {value}}}"
        yield table.added("ENV", inner)
    elif isinstance(pair[1], yaml.MappingNode) and pair[1].value:
        inside = _Table(table.text, pair[1], table.as_json)
        if found := inside.find(edit.name):
            yield from inside.replaced(found, [edit.value])
        else:
            yield inside.added(edit.name, value)
    else:
        start, end = pair[1].start_mark.index, pair[1].end_mark.index
        yield [(start, end, f'{" " * (start == end)}{{"{edit.name}": {value}}}')]


def _end(node: yaml.Node) -> int:
    """Where the last scalar ends: a block's own mark lies behind the comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
