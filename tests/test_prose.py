"""Prose follows the style guide: US spelling, the field's terms, docstrings that name a thing."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

REFUSED = {
    "anew": "again",
    "whence": "from",
    "nobody": "no one",
    "in turn": "interleaved",
    "at the least": "minimum",
    r"(?:is|are|was|were) told": "is estimated",
    r"(?:hold|holds|held) (?:\w+ ){0,4}against": "compare",
    r"\w+isations?": "-ization",
    r"(?:quant|optim|normal|initial|serial|parallel|vector|summar|recogn|general|minim|maxim|organ"
    r"|synchron|real|final|character|author|util|emphas)is(?:e|es|ed|er|ers|ing)": "-iz-",
    r"analys(?:e|ed|ing)": "-yz-",
    r"(?:colour|behaviour|favour|neighbour)\w*": "-or",
    r"(?:centre|licence|grey|catalogue|whilst|towards)s?": "US spelling",
    r"[\d.]+ ?× less|[\d.]+ × fewer": "N× smaller, N× fewer",
    "multiply-adds?": "MACs",
    r"(?:key-value|key/value) caches?": "KV cache",
    "beside": "next to",
    "kin": "family",
    "FLOPs|flops": "FLOP",
    "on paper": "theoretical",
    "told": "named, estimated",
}
"""Patterns of whole words, each with what to write in its place."""

_REFUSED = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"```.*?```|``.*?``|`[^`]*`|\"[^\"\n]*\"|“[^”]*”|<[^<>]*>|\S*[/_]\S*", re.DOTALL
)
_OPENING = re.compile(r"(?:What|Whether|Who|Whose|Whom|How|Where|Which|When|Why)\b")

Found = tuple[str, str]
"""A place, and what stands there."""


def prose_of_code(source: str, place: str) -> Iterator[Found]:
    """Yield docstrings, and other texts of more than one word, each with its place."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield f"{place}:{node.lineno}", node.value


def prose_of_page(text: str, place: str) -> Iterator[Found]:
    """Yield the paragraphs of a Markdown page."""
    text = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        yield f"{place}:{number}", line


def prose_of_notebook(text: str, place: str) -> Iterator[Found]:
    """Yield what is written between the cells of a notebook."""
    for number, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] == "markdown":
            yield from prose_of_page("".join(cell["source"]), f"{place}[{number}]")


READERS = {".py": prose_of_code, ".md": prose_of_page, ".ipynb": prose_of_notebook}


def files() -> Iterable[Path]:
    for place in ("roofline", "docs", "notebooks", "README.md", "CONTRIBUTING.md"):
        found = [ROOT / place] if "." in place else sorted((ROOT / place).rglob("*"))
        yield from (each for each in found if each.suffix in READERS)


def refused(path: Path) -> Iterator[str]:
    place = path.relative_to(ROOT).as_posix()
    for where, text in READERS[path.suffix](path.read_text(encoding="utf-8"), place):
        for hit in _REFUSED.finditer(_QUOTED.sub(" ", text)):
            yield f"{where}: {hit[0]!r}"


def openings(path: Path) -> Iterator[str]:
    """Yield docstrings that open with a question word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if _OPENING.match(text):
                line = getattr(node, "lineno", 1)
                yield f"{path.relative_to(ROOT).as_posix()}:{line}: {text.splitlines()[0]}"


@pytest.mark.parametrize("folder", sorted({each.parent for each in files()}), ids=str)
def test_prose_has_no_refused_word(folder: Path) -> None:
    hits = [hit for each in files() if each.parent == folder for hit in refused(each)]
    assert not hits, "\n".join(hits)


def test_docstrings_name_what_is_returned_or_done() -> None:
    hits = [hit for each in files() if each.suffix == ".py" for hit in openings(each)]
    assert not hits, "\n".join(hits)


def test_the_list_finds_its_words_and_spares_code() -> None:
    text = 'It is told anew; `whence` and "colour" are quotations. 6.37 × less, quantisation.'
    found = [hit[0] for hit in _REFUSED.finditer(_QUOTED.sub(" ", text))]
    assert found == ["is told", "anew", "6.37 × less", "quantisation"]


if __name__ == "__main__":
    for each in files():
        if any(str(each.relative_to(ROOT)).startswith(start) for start in sys.argv[1:] or [""]):
            for hit in (*refused(each), *(openings(each) if each.suffix == ".py" else ())):
                print(hit)
