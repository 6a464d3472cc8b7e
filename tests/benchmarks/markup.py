r"""Docstrings in reStructuredText as Markdown that GitHub renders: ``.. math::`` as $$ ... $$, roles as $ ... $."""

import re
import textwrap

_BLOCK = re.compile(r"^\.\. math::[ \t]*(.*)\n((?:[ \t]+\S.*\n|[ \t]*\n)*)", flags=re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`|``(.+?)``|`([^`<]+?)\s*<([^>`]+)>`__?", flags=re.DOTALL)


def markdown(text: str) -> str:
    """A docstring as Markdown.

    Equations stand in blocks of their own, one for each paragraph of a ``.. math::`` directive; lines of an equation are
    joined, so that none of them looks like a list or a heading.
    """
    pieces = _BLOCK.split(text.strip() + "\n")
    parts = [_prose(pieces[0])]
    for first, rest, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        parts += [*map(_equation, re.split(r"\n[ \t]*\n", f"{first}\n{rest}")), _prose(after)]
    return "\n\n".join(part for part in parts if part) + "\n"


def reflowed(page: str, width: int = 100) -> str:
    """A page with its prose wrapped; tables, headings, pictures, code and equations stay as they are."""
    blocks, parts = re.split(r"(```.*?```|\$\$.*?\$\$)", page, flags=re.DOTALL), []
    for number, block in enumerate(blocks):
        kept = number % 2 == 1
        parts += [block] if kept else [_paragraph(each, width) for each in re.split(r"(\n\s*\n)", block)]
    return "".join(parts)


def _paragraph(text: str, width: int) -> str:
    lines = text.strip("\n").splitlines()
    if not text.strip() or any(line.startswith(("|", "#", "!", "<")) for line in lines):
        return text
    before, after = text[: len(text) - len(text.lstrip("\n"))], text[len(text.rstrip("\n")) :]
    items: list[str] = []
    for line in lines:
        if not items or re.match(r"(- |\d+\. )", line):
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    told = []
    for item in items:
        indent = "  " if item.startswith("- ") else ""
        # A line that begins in the middle of an equation or of code may look like a list.
        whole = re.sub(r"\$[^$]+\$|`[^`]+`", lambda found: found[0].replace(" ", "\0"), item)
        told += textwrap.wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return before + "\n".join(told).replace("\0", " ") + after


def _equation(text: str) -> str:
    line = " ".join(text.split())
    if (r"\\" in line or "&" in line) and r"\begin" not in line:
        line = rf"\begin{{aligned}} {line} \end{{aligned}}"
    return f"$$\n{line}\n$$" if line else ""


def _prose(text: str) -> str:
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts += [_plain(text[end : found.start()]), _marked(found)]
        end = found.end()
    return "".join([*parts, _plain(text[end:])]).strip()


def _marked(found: re.Match[str]) -> str:
    math, code, title, address = found.groups()
    if math is not None:
        return f"${' '.join(math.split())}$"
    return f"`{code}`" if code is not None else f"[{title}]({address})"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("$", r"\$")
