"""Make README.md the front page, so that there is one text, and draw the pages' pictures.

No picture is kept in the repository: the photograph comes from a package on the index, and the
plot from the figures on the page about performance.
"""

import io
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

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


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pictures that are drawn when the pages are built."""
    figures = Path(config["docs_dir"]) / "reference" / "performance.md"
    drawn = {"faces.jpg": faces(), "borders.png": borders(figures.read_text(encoding="utf-8"))}
    for name, content in drawn.items():
        files.append(File.generated(config, f"pictures/{name}", content=content))
    return files


def faces() -> bytes:
    """Find the face in the astronaut's photograph and draw what was found, as the demo does."""
    from torchmojo.demo.picture import find_picture
    from torchmojo.vision import centerface
    from torchmojo.vision.pipeline.draw import annotate

    path = find_picture().path
    if path is None:
        raise FileNotFoundError("the photograph: pip install --no-deps -r requirements-assets.txt")
    [record] = centerface(keep=["image"], on_error="raise", workers=0)([path])
    written = io.BytesIO()
    annotate(record).convert("RGB").save(written, "JPEG", quality=88)
    return written.getvalue()


def borders(page: str) -> bytes:
    """Draw the table of the copy experiment: three ways of each job, the usual one as 1."""
    from matplotlib.figure import Figure

    head = "| ms | a copy at each border | Pillow and torch | torchmojo |"
    rows = page.split(head)[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    names = [
        re.sub(r" *\(.*?\)", "", row[0])
        .replace(", ", ",\n")
        .replace(": ", ":\n")
        .replace(" of ", "\nof ")
        for row in cells
    ]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    for k, (label, colour) in enumerate(
        [
            ("a copy at each border", "#b0442e"),
            ("Pillow and torch", "#8a8a8a"),
            ("torchmojo", "#2e6fb0"),
        ]
    ):
        shares = [float(row[k + 1]) / float(row[2]) for row in cells]
        axes.barh(
            [i + 0.27 * (k - 1) for i in range(len(cells))], shares, 0.25, label=label, color=colour
        )
    axes.set_yticks(range(len(cells)), names)
    axes.invert_yaxis()
    axes.set_xlabel("time, as a share of the usual way's")
    axes.set_xscale("log")
    axes.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    axes.set_xticks([], minor=True)
    figure.legend(frameon=False, loc="outside upper center", ncols=3)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=110)
    return written.getvalue()
