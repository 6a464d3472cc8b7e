"""Every relative link in the Markdown pages leads to a file, and every anchor to a heading. Run: make check."""

import re
import sys
from pathlib import Path


def broken(root: Path) -> list[str]:
    """Links that lead nowhere, as ``page: link``."""
    found = []
    for page in [*root.glob("*.md"), *(root / "docs").glob("**/*.md"), *(root / "data").glob("**/*.md")]:
        # Code and equations may look like links and are none.
        text = re.sub(r"^(```|\$\$).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = page if not target else (page.parent / target)
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                found.append(f"{page.relative_to(root)}: {link}")
    return found


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


if __name__ == "__main__":
    wrong = broken(Path(__file__).parent.parent)
    print("\n".join(wrong) or "all links lead somewhere")
    sys.exit(bool(wrong))
