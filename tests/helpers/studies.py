"""Studies in files."""

from pathlib import Path

from fedtopics import Study


def written(folder: Path, content: str) -> Path:
    path = folder / "study.toml"
    path.write_text(content, encoding="utf-8")
    return path


def read(folder: Path, content: str) -> Study:
    return Study.read(written(folder, content))
