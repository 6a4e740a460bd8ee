"""Run the code blocks of README.md, docs/ and the doc-strings of src/ as tests.

The blocks of one file share a namespace and an empty working folder. A block of Mojo whose first
line names its file, as `# kernels.mojo` does, is written into that folder for the blocks after it;
a block of Mojo without such a line, and a block in any other language, is text.
`<!-- skip: next "reason" -->` before a block skips it.
"""

import contextlib
import doctest
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sybil import Document, Example, Region, Sybil
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.mojo)\n")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class MojoFileParser(CodeBlockParser):
    """Write each named block of Mojo into the working folder."""

    language = "mojo"

    def __call__(self, document: Document) -> Iterable[Region]:
        """Find the named blocks."""
        return (region for region in super().__call__(document) if FILE_NAME.match(region.parsed))

    def evaluate(self, example: Example) -> None:
        """Write one block."""
        path = Path(FILE_NAME.match(example.parsed)["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(example.parsed, encoding="utf-8")


class DocStringParser(DocTestParser):
    """Find the `>>>` examples that stand outside a fenced block."""

    def __call__(self, document: Document) -> Iterable[Region]:
        """Leave what the fenced blocks hold to their own parser."""
        fenced = list(PythonCodeBlockParser(doctest_optionflags=OPTIONS)(document))
        for region in super().__call__(document):
            if not any(f.start <= region.start < f.end for f in fenced):
                yield region


def enter_folder(namespace: dict[str, object]) -> None:
    """Give the examples of one file an empty folder to work in."""
    stack = namespace["__folder__"] = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="torchmojo-doc-"))
    stack.callback(os.chdir, Path.cwd())
    os.chdir(folder)


def leave_folder(namespace: dict[str, object]) -> None:
    """Go back to where the tests run, and remove the folder."""
    namespace["__folder__"].close()


pytest_plugins = ["torchmojo.testing.plugin"]

PARSERS = [MojoFileParser(), PythonCodeBlockParser(doctest_optionflags=OPTIONS), SkipParser()]
pages = Sybil(
    parsers=PARSERS,
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    setup=enter_folder,
    teardown=leave_folder,
)
doc_strings = Sybil(
    parsers=[*PARSERS, DocStringParser(OPTIONS)],
    patterns=["src/**/*.py"],
    setup=enter_folder,
    teardown=leave_folder,
)
pytest_collect_file = (pages + doc_strings).pytest()
