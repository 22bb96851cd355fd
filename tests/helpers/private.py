"""Who could read what a run left on disk."""

from pathlib import Path

OTHERS = 0o077


def open_to_others(folder: Path) -> list[str]:
    """Return what below a folder, itself included, others than its owner could do anything with."""
    paths = [folder, *sorted(folder.rglob("*"))]
    assert len(paths) > 1, "there is nothing"
    return [str(path.relative_to(folder)) for path in paths if path.stat().st_mode & OTHERS]
