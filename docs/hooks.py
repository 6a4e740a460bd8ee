"""Make README.md the front page, so that there is one text."""

import re
from pathlib import Path
from typing import Any

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace the text of index.md by README.md, its links written as seen from docs/."""
    if page.file.src_uri != "index.md":
        return markdown
    readme = Path(config["config_file_path"]).parent / "README.md"
    text = readme.read_text(encoding="utf-8")
    return RELATIVE_LINK.sub(lambda link: from_docs(*link.groups(), config["repo_url"]), text)


def from_docs(text: str, target: str, repository: str | None) -> str:
    """Point a link of README.md at its page; at the repository, if known, for other files."""
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')})"
    return f"[{text}]({repository.rstrip('/')}/blob/main/{target})" if repository else text
