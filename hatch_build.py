"""Links for the package index, which has none of our files beside the README.

``PROJECT_URL`` is where the repository is public: no fact of the source tree, and a fork has another. Without it the
README keeps the text of links to files, and loses the links.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
PAPER = "https://arxiv.org/abs/2604.04247"


class Links(MetadataHookInterface):
    """Gives the README absolute links, and the project its addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata."""
        address = os.environ.get("PROJECT_URL", "").rstrip("/")  # noqa: TID251 - a build has no settings
        readme = Path(self.root, "README.md").read_text("utf-8")
        text = absolute(readme, address, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Paper": PAPER, **urls(address)}


def urls(address: str) -> dict[str, str]:
    """Return the project's own addresses."""
    if not address:
        return {}
    changes = {"Documentation": "README.md", "Changelog": "CHANGELOG.md"}
    pages = {name: f"{address}/blob/main/{page}" for name, page in changes.items()}
    return {"Source": address, "Issues": f"{address}/issues", **pages}


def absolute(text: str, address: str, tag: str) -> str:
    """Return Markdown whose links to files lead to the repository; without an address they are only text."""

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if not address:
            return "" if picture else label
        return f"{picture}[{label}]({address}/{'raw' if picture else 'blob'}/{tag}/{target})"

    return LINK.sub(link, text)
