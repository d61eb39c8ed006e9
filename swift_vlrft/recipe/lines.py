"""Find lines and words that bash reads otherwise than they look.

swift rlhf \\
  # --beta 0 \\             the comment ends the command:
  --max_length 512          --max_length is lost
NPROC_PER_NODE=4            set for the script alone: `swift` does not see it
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from swift_vlrft.files.environment import VARIABLES
from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.tree import Node, Note, Patch, note_at
from swift_vlrft.recipe.words import Command

OTHER_VARIABLES = re.compile(
    r"(VLRFT|VLLM|NCCL|GLOO|DS|PYTORCH|OMP|MODELSCOPE|CUDA_DEVICE|SWIFT(?!_CONFIG_FILE$))_\w+"
    r"|HF_(HUB|DATASETS)_\w+|\w*VIDEO_READER\w*"
)
"""Variables that ms-swift, its engines or this package read, by the first part of their names."""
MEANT = {
    **{"IMAGE_MAX_PIXELS": "MAX_PIXELS", "MAX_TOKEN_NUM": "IMAGE_MAX_TOKEN_NUM"},
    **{"VISIBLE_DEVICES": "CUDA_VISIBLE_DEVICES", "CUDA_DEVICES": "CUDA_VISIBLE_DEVICES"},
}
"""Names that nobody reads, and what they stand for."""
PROGRAM = re.compile(r"(?:\S*/)?swift|swift\.cli\.\S+|\S*swift/cli/\S+\.py")
STARTS = r"(?:swift|nohup|env|python[\d.]*|torchrun|accelerate|deepspeed)(?=\s)"
JOINED = re.compile(rf"\\\r?\n(?=(--?[A-Za-z]\w*|[A-Za-z_]\w*=|{STARTS}))")
"""A word that goes on in the first column of the next line, with what looks like another word."""
GAP = re.compile(r"(?:[^\S\n]|\\\r?\n|\n|(?<=\s)#[^\n]*)*")
"""Between two commands: line ends, empty lines and comments alone."""
MAKERS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|make|cp|mv|ln|tar|unzip|7z|gunzip|cat|touch|dd|wget|curl|aria2c|rsync"
    r"|scp|clone|lfs|pull|download|sync|vlrft|swift|.*\.(?:sh|py)|(?:ba|da|z|k)?sh)"
)
"""Words, one of the first three of a command, that may make files which a run reads."""
NO_NAME = re.compile(r"(?!-|[\"']?\$(?!\w+=)|\"|(?!swift$)[A-Za-z_]\w*$)")
NO_COMMAND = re.compile(r"[A-Za-z_]\w* =|\$\w+=|set [A-Za-z_]\w*=")
NUMBERS = re.compile(r"[\d.]+(?:,[\d.]*)*")
"""Words of `export`, and commands, that are meant to set a variable."""
CONTINUES = re.compile(r"\\\\|[/^]|\\\s*#.*")
"""What is written at the end of a line for a backslash, or with a comment behind it."""
OF_BASH = re.compile(r"IFS|PATH|PS\d|(?:OPT|HIST|BASH|LC_)\w+|LANG|SHELLOPTS|TIMEFORMAT")
"""Variables that bash reads itself."""
DASHES = "\u2010-\u2015\u2212\uff0d"
FLAG = re.compile(rf"['\"]?[-{DASHES}]{{1,3}}[A-Za-z]")
TYPED = {
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb\uff02", '"'),
    **dict.fromkeys("\u2018\u2019\uff07\u00b4", "'"),
    **{"\u00a0": " ", "\u3000": " ", "\uff1d": "=", "\uff0c": ","},
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
}
"""What a word processor or a chat puts in the place of a keyboard's characters."""
OF_QUOTES = "".join(key for key, value in TYPED.items() if value in ("'", '"'))
TYPOGRAPHY = re.compile(
    rf"^-*[{DASHES}][-{DASHES}]*(?=[A-Za-z\d])|(?:^|(?<==))[{OF_QUOTES}]|[{OF_QUOTES}]$"
    rf"|(?<=\d[eE])[{DASHES}](?=\d)|(?<=[A-Za-z\d])\uff0c(?=[A-Za-z\d])"
    r"|(?<=[A-Z])\uff1d|(?<!\\)[\u00a0\u3000](?=[-\w])|[\u200b-\u200d\u2060\ufeff]"
)


def is_read(name: str) -> bool:
    """Tell whether ms-swift, its engines or this package read a variable; torchrun's own aside."""
    known = name in facts().variables or OTHER_VARIABLES.fullmatch(name)
    return bool(known) and name not in ("RANK", "LOCAL_RANK")


def almost(name: str) -> str | None:
    """Return the variable that a name is almost; None if it is one, or like none."""
    known = facts().variables
    if name in known or (ours := name.startswith("VLRFT_")) and name in VARIABLES:
        return None
    cutoff = 0.1 if ours else 0.9 if OTHER_VARIABLES.fullmatch(name) else 0.8
    among = VARIABLES if ours else [*known, *MEANT]
    near = difflib.get_close_matches(name.upper(), among, n=1, cutoff=cutoff)
    return MEANT.get(near[0], near[0]) if near else None


def wrong_lines(text: str, statements: Sequence[Node]) -> Iterator[Note]:
    """Yield notes on lines of a script that are lost or joined, and on words with a slip."""
    if text.startswith("\ufeff"):
        why = "the file begins with a byte order mark, which bash takes for a part of line 1. "
        why += "Remove it: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
        yield note_at(text, 0, "syntax", why, Patch(0, 1, ""))
    if "\r" in text:
        why = "the line ends in a carriage return (Windows), which bash takes for a part of it. "
        why += "Convert the file: sed -i 's/\\r$//' FILE"
        ends = (Patch(*match.span(), "") for match in re.finditer("\r+(?=\n|$)", text))
        yield note_at(text, text.index("\r"), "continuation", why, *ends)
    nodes = commands_of(statements)
    for node in nodes:
        yield from _slips(text, node)
    for above, node in pairwise(nodes):
        yield from _lost(text, above, node)


def commands_of(statements: Sequence[Node]) -> list[Node]:
    """Return the statements that are a single command, in the order of lines: those of functions
    and loops, too, but not those within the words of another.
    """
    inner = (node for statement in statements for node in statement.walk() if node.Cmd)
    simple = (node for node in inner if node.Cmd.Type in ("CallExpr", "DeclClause"))
    outer = list[Node]()
    for node in sorted(simple, key=lambda node: node.Pos.at):
        if not outer or node.Pos.at >= outer[-1].End.at:
            outer.append(node)
    return outer


def makers_above(nodes: Sequence[Node], line: int) -> str:
    """Return the text of the commands above a line that may make files."""

    def makes(node: Node) -> bool:
        writes = any(r.Word and r.Word.text != "/dev/null" for r in node.Redirs if ">" in r.Op)
        return writes or any(MAKERS.fullmatch(word.text) for word in node.Cmd.Args[:3])

    return "\n".join(node.text for node in nodes if node.End.line < line and makes(node))


def _runs_swift(node: Node) -> bool:
    return any(PROGRAM.fullmatch(word.text) for word in node.Cmd.Args)


def _lost(text: str, above: Node, node: Node) -> Iterator[Note]:
    """A line of flags, or one deeper than its command, that bash takes for another command."""
    words = [word.text for word in node.Cmd.Args]
    gap = text[above.End.at : node.Pos.at]
    if not words or node.Cmd.Assigns or node.Cmd.Variant:
        return
    flags = [word.partition("=")[0] for word in words if FLAG.match(word)]
    piped = [flag for flag in flags if flag[2:].replace("-", "_") in facts().commands]
    if piped and gap.strip("&\\\r\n\t ") == "|" and _runs_swift(above):
        why = f"behind the pipe, where `{words[0]}` gets them: {', '.join(piped)}"
        yield note_at(text, node.Pos.at, "continuation", why, name=" ".join(piped))
    goes_on = "\\\n" in gap.replace("\r", "") or node.line == above.End.line + 1
    deeper = _indent(text, node.Pos.at) > _indent(text, above.Pos.at)
    deeper |= [word.text for word in above.Cmd.Args] == ["swift"]  # its command is lost
    belongs = goes_on and deeper and _runs_swift(above) and not above.Background
    if not GAP.fullmatch(gap) or not (belongs or FLAG.match(words[0])):
        return
    why, patch = end_of(text, above, node)
    lost = ", ".join(flags) if flags else f"`{' '.join(words)[:60]}`"
    said = f"{why}, so bash takes the line for a command of its own: lost "
    said += f"{'are' if len(flags) > 1 else 'is'} {lost}"
    if patch.start < above.End.at:  # in its last words
        flags += [word.text for word in above.Cmd.Args if FLAG.match(word.text)][-1:]
    patches = [patch]
    if text[patch.start] == "&" and not node.Background:
        patches.append(Patch(node.End.at, node.End.at, " &"))
    yield note_at(text, node.Pos.at, "continuation", said, *patches, name=" ".join(flags))


def _indent(text: str, at: int) -> int:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return len(line) - len(line.lstrip())


def end_of(text: str, above: Node, node: Node) -> tuple[str, Patch]:
    """Say what ends a command before the line that was meant to belong to it, and mend it."""
    line, start = above.End.line, above.End.at
    gap = text[start : node.Pos.at]
    odd = [w for w in above.Cmd.Args if w.line == line and CONTINUES.fullmatch(w.text)]
    if odd:
        start = odd[0].Pos.at
        why = f"`{text[start : above.End.at]}` ends line {line} where a backslash is meant"
    elif text[start - 1] in ";&":
        start -= 1
        why = f"`{text[start]}` ends the command in line {line}"
    elif re.match(r"[ \t]+#", gap):
        why = f"a comment ends line {line}, and no backslash stands before it"
    elif "#" in gap:
        why = f"a comment stands below line {line} and ends the command"
    elif "\\" in gap or text[start - 2 : start] == "\\\n":
        why = f"an empty line follows the backslash of line {line} and ends the command"
    else:
        why = f"no backslash ends line {line}"
    indent = gap[gap.rfind("\n") + 1 :]
    return why, Patch(start, node.Pos.at, f"{' ' * (text[start - 1] != ' ')}\\\n{indent}")


def _slips(text: str, node: Node) -> Iterator[Note]:
    """Slips within the words of one command."""
    command, exports = node.Cmd, node.Cmd.Type == "DeclClause"
    args = command.Args
    values = [assigned.Value for assigned in (*command.Assigns, *args) if assigned.Value]
    for word in (*args, *values):
        for at, follows in _joins(text, word):
            why = "no blank stands before the backslash, and none before the next line: bash joins "
            why += f"{follows} to the word before it. Write a blank before the backslash"
            name = re.sub(r"\\\r?\n", "", word.text) + f" {follows.rstrip('=')}"
            yield note_at(text, at, "continuation", why, Patch(at, at, " "), name=name)
    if args and (not exports or command.Variant.Value == "export"):
        yield from _assignments(text, node)
    if exports or _runs_swift(node):
        yield from _typed(text, [*([] if exports else args), *values])
    if not exports and _runs_swift(node):
        yield from _behind(text, node)


def _joins(text: str, word: Node) -> Iterator[tuple[int, str]]:
    quoted = [(p.Pos.at, p.End.at) for p in word.Parts if p.Type not in ("Lit", "ParamExp")]
    for match in JOINED.finditer(text, word.Pos.at + 1, word.End.at + 1):
        at = match.start()
        if match.end() < word.End.at and not any(first <= at < last for first, last in quoted):
            yield at, match[1]


def _assignments(text: str, node: Node) -> Iterator[Note]:
    """What is meant to set a variable and does not: blanks around `=`, a `$`, `set`."""
    words, exports = node.Cmd.Args, bool(node.Cmd.Variant)
    wrong = [word for word in words if word.Naked and NO_NAME.match(word.text)]
    if not exports:
        listed = node.Cmd.Assigns and NUMBERS.fullmatch(words[0].text)
        wrong = words if listed or NO_COMMAND.match(" ".join(word.text for word in words)) else []
    for word in wrong[:1]:
        said, patches = word.text, list[Patch]()
        why = f"bash takes `{said}` for a {'name' if exports else 'command'} of its own: write "
        why += "`export NAME=VALUE` on its own line, without $, and no blanks around = or in a list"
        start = len(text[: word.Pos.at].rstrip())
        if said == "set":
            patches = [Patch(word.Pos.at, word.End.at, "export")]
        elif exports and (said == "=" or text[start - 1] in ",="):
            behind = text[word.End.at :]
            blanks = len(behind) - len(behind.lstrip()) if said == "=" else 0
            patches = [Patch(start, word.End.at + blanks, said)]
        name = " ".join(word.Name.Value for word in words if word.Name)
        yield note_at(text, word.Pos.at, "not-exported", why, *patches, name=name)


def _typed(text: str, words: Sequence[Node]) -> Iterator[Note]:
    """Dashes, quotes and blanks that no keyboard has, outside quotes."""
    for word in words:
        for part in (part for part in word.Parts if part.Type == "Lit"):
            for match in TYPOGRAPHY.finditer(text[part.Pos.at : part.End.at]):
                start, end = (part.Pos.at + at for at in match.span())
                new = TYPED.get(match[0], "-" if text[end : end + 1].isdigit() else "--")
                # A blank or nothing may belong to a name of another alphabet.
                if new.strip() or word.text.replace(match[0], "").isascii():
                    odd = match[0] if match[0].isprintable() else ascii(match[0])[1:-1]
                    mend = (
                        f"write `{new}`" if new.strip() else "write a blank" if new else "delete it"
                    )
                    why = f"{odd} is from a word processor, and a letter to bash: {mend}"
                    spoilt = f"{word.text} {word.text.replace(match[0], new)}"
                    patch = Patch(start, end, new)
                    yield note_at(text, start, "typographic", why, patch, name=spoilt)


def _behind(text: str, node: Node) -> Iterator[Note]:
    """A variable behind the command, and a value that begins a comment."""
    args = node.Cmd.Args
    at = next(n for n, word in enumerate(args) if PROGRAM.fullmatch(word.text))
    for word in args[at + 1 :]:
        if match := re.match(r"([A-Z][A-Z0-9_]{2,})=", word.text):
            why = f"{match[1]}=... stands behind the command, which gets it as a word, and no "
            why += "variable is set: write it before the command"
            above = re.search(r"(?:[ \t]|\\\r?\n)*\Z", text[: word.Pos.at])
            gone = Patch(above.start() if above else word.Pos.at, word.End.at, "")
            moved = Patch(node.Pos.at, node.Pos.at, f"{word.text} ")
            yield note_at(text, word.Pos.at, "stray-variable", why, gone, moved, name=word.text)
    comment = re.compile(r"[ \t]+(#\S+)").match(text, node.End.at)
    flag, last = next((w.text for w in reversed(args) if w.text[:2] == "--"), ""), args[-1].text
    kinds = facts().commands.get(flag[2:].replace("-", "_"), {}).values()
    if comment and last == flag and kinds and not any(kind.kind == "bool" for kind in kinds):
        why = f"the value of {flag} begins with #, and bash takes it for a comment: quote it"
        mend = Patch(*comment.span(1), f"'{comment[1]}'")
        yield note_at(text, comment.start(1), "comment", why, mend, name=flag)
    elif comment and last != flag and "dataset" in flag and comment[1][1:].isdigit():
        why = f"a blank stands before {comment[1]}, so bash takes it for a comment: write "
        mend = Patch(node.End.at, comment.start(1), "")
        yield note_at(text, comment.start(1), "comment", f"{why}{last}{comment[1]}", mend)


def not_exported(
    text: str, statements: Sequence[Node], commands: Sequence[Command]
) -> Iterator[Note]:
    """Yield notes on variables that no command sees, or whose name nobody reads."""
    nodes = commands_of(statements)
    uses, printed = (re.sub(r"(?m)(?:^|(?<=\s))#.*", "", text) for _ in range(2))
    for node in nodes:
        if node.Cmd.Args and node.Cmd.Args[0].text in ("echo", "printf"):
            uses = uses.replace(node.text, "")
    for at, (node, below) in enumerate(zip_longest(nodes, nodes[1:])):
        exports, late = bool(node.Cmd.Variant), all(c.line < node.line for c in commands)
        alone = node.Cmd.Args if exports and late else () if node.Cmd.Args else node.Cmd.Assigns
        for assigned in (assigned for assigned in alone if commands and assigned.Name):
            name = assigned.Name.Value
            use = re.compile(rf"(?<!\w){name}(?!\w|\+?=)")
            meant = [c for c in commands if c.line >= node.line][:1] or commands
            if OF_BASH.fullmatch(name) or any(
                c.lost or name in c.environment or name in c.unknown for c in meant
            ):
                continue
            near, own = almost(name), len(use.findall(assigned.text))
            known = is_read(name) or bool(near)
            if (exports and not known) or len(use.findall(uses if known else printed)) > own:
                continue
            why = f"{name} is set for this script alone, and `swift` does not see it"
            why += ", nor does the script use it" * (not known)
            patches = [Patch(node.Pos.at, node.Pos.at, "export ")]
            if late:  # another program below may be meant
                why = f"{name} is set behind the command, which does not see it: write it above"
                patches = []
            elif below and "\\" in (gap := text[node.End.at : below.Pos.at]) and GAP.fullmatch(gap):
                ended, *patches = end_of(text, node, below)
                why += f": {ended}"
            else:
                why += f": write `export {name}=...`"
            why += f"; did you mean {near}?" if near else ""
            others = exports and any(n.Cmd.Args and not n.Cmd.Variant for n in nodes[at:])
            kind = "not-exported" if known and not others else "unused"
            yield note_at(text, assigned.Pos.at, kind, why, *(patches if known else ()), name=name)
    for name in dict.fromkeys(name for command in commands for name in command.environment):
        written = re.search(rf"(?<![\w$]){re.escape(name)}=", text)
        read = re.search(rf"\$\{{?{re.escape(name)}\b", text)
        if written and not read and (near := almost(name)):
            version = facts().versions["ms-swift"]
            why = f"{name}: neither ms-swift {version} nor this package reads it; near is {near}"
            yield note_at(text, written.start(), "variable", why)
