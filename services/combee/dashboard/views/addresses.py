"""The pages of the navigation and their addresses."""

PAGES = (
    ("o", "Overview", "/"),
    ("p", "Playbooks", "/playbooks"),
    ("s", "Search", "/search"),
    ("f", "Flow", "/flow"),
    ("b", "Batches", "/batches"),
    ("l", "Learning", "/learning"),
    ("d", "Dead letters", "/dead-letters"),
    ("c", "Configuration", "/configuration"),
)
"""Key, name and address of each page."""


def is_page(path: str) -> bool:
    """Return whether there is a page at an address."""
    first, _, rest = path.partition("?")[0].partition("#")[0].strip("/").partition("/")
    if first == "batches":
        return "/" not in rest
    return not rest and f"/{first}" in {"/playbook", *(known for _, _, known in PAGES)}


def section(path: str) -> str:
    """Return the page of the navigation that an address belongs to."""
    first = "/" + path.partition("?")[0].strip("/").partition("/")[0]
    return "/playbooks" if first == "/playbook" else first
