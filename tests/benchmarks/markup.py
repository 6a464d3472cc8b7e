r"""Docstrings in reStructuredText as Markdown that GitHub renders: ``.. math::`` as $$ ... $$, roles as $ ... $."""

import re

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
