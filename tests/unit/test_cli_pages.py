"""The pages on commands and environment variables say all that there is, and nothing else.

`python tests/unit/test_cli_pages.py` writes the page on environment variables.
"""

import re
from pathlib import Path

import pytest
import typer.main

from torchmojo.cli import app
from torchmojo.toolchain.settings import VARIABLES

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"

HEAD = """\
# Environment variables

Every variable that torchmojo reads. An empty one counts as unset; one that changes counts from the
next load on. A value that means nothing is refused with the variable's name.

| variable | default | effect |
|---|---|---|
"""

TAIL = """
`torchmojo doctor` prints those that are set.

Programs in Mojo that run [models](../guides/models.md) read one more, `TORCHMOJO_TORCH_LIB`: the
path of `libtorch_cpu.so`, by default where it was when the model was prepared.

## What can go wrong

```text
environment variable TORCHMOJO_CACHE_SIZE: wanted a size such as 500MB, 2GiB or 1073741824,
given 'big'; unset it to get the default
```
"""


def environment_page() -> str:
    """Write the page from the table that the package reads."""
    rows = [f"| `{v.name}` | {v.default} | {v.effect} |\n" for v in VARIABLES]
    return HEAD + "".join(rows) + TAIL


def commands() -> dict[str, list[str]]:
    """Give the options of each command, by its words."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        for inner, leaf in getattr(command, "commands", {"": command}).items():
            options = [max(p.opts, key=len) for p in leaf.params if p.opts[0].startswith("-")]
            found[f"{name} {inner}".strip()] = options
    return found


def test_the_page_on_variables_is_the_table():
    page = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    assert page == environment_page(), "run: python tests/unit/test_cli_pages.py"


@pytest.mark.parametrize(("words", "options"), commands().items())
def test_the_page_on_commands_has_each(words, options):
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    match = re.search(rf"`torchmojo {words}\b([^`]*(?:\[|-o DIR)[^`]*)`", page)
    assert match, f"no usage of {words}"
    short = {"--include": "-I", "--out": "-o"}
    for option in options:
        assert option in match[1] or short.get(option, "?") in match[1]


def test_the_page_on_commands_has_no_other():
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    used = set(re.findall(r"`torchmojo ((?:cache )?[a-z]+)", page))
    assert used - {"cache"} == set(commands())


if __name__ == "__main__":
    (REFERENCE / "environment.md").write_text(environment_page(), encoding="utf-8")
