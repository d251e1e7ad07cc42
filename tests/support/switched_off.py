"""Protections taken out of real processes: their interpreter runs a few lines of ours first."""

from pathlib import Path


def patched(folder: Path, source: str) -> dict[str, str]:
    """Return the environment of a process whose interpreter runs this first."""
    code = folder / "code"
    code.mkdir()
    (code / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": str(code)}
