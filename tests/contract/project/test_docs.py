"""The documents say what the code says."""

import csv
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from combee.process.settings.loading import GROUPS
from support import shown

PAGES = {page: page.read_text("utf-8") for page in shown.pages()}
LINKS = [(page, link) for page, text in PAGES.items() for link in shown.links(text)]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", shown.ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current() -> None:
    assert list(_generator().stale()) == [], "run 'python docs/generate.py'"


def test_a_stale_page_is_named_and_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = _generator()
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    page = "reference/topics.txt"
    monkeypatch.setattr(
        generator, "pages", lambda: {page: generator.topics_file()}
    )  # the others take as long each
    (tmp_path / "reference").mkdir()
    (tmp_path / page).write_text("old")

    assert generator.main(["--check"]) == 1
    assert f"docs/{page} is stale" in capsys.readouterr().err
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def test_each_role_has_a_file_with_its_whole_prompts_and_the_page_links_to_it() -> None:
    page, *files = _generator().prompt_pages().items()
    linked = {f"reference/{link.target}" for link in shown.links(page[1])}

    assert {name for name, _ in files} <= linked
    assert [text.count("======== system part") for _, text in files] == [1] * len(files)
    assert [text.count("======== user part") for name, text in files if "reflector.txt" in name] == [3]
    assert sum("ADD a new entry" in text for _, text in files) == 2  # repeated, not referred to


def test_the_example_of_a_configuration_holds_every_setting_with_its_default() -> None:
    text = _generator().settings_file()
    lines = re.findall(r"^#(\w+ = (?!# unset).*)$", text, re.MULTILINE)
    fields = {name: info for group in GROUPS.values() for name, info in group.model_fields.items()}

    assert {name: fields[name].default for name in tomllib.loads("\n".join(lines))} == tomllib.loads(
        "\n".join(lines)
    )
    assert [name for name in fields if f"COMBEE_{name.upper()}" not in text] == []


def test_relative_links_resolve() -> None:
    broken = []
    for page, link in LINKS:
        target, _, anchor = link.target.partition("#")
        if "://" in target:
            continue
        found = page.parent / target if target else page
        if not found.exists() or (anchor and anchor not in shown.headings(found.read_text("utf-8"))):
            broken.append((page, link.target))

    assert broken == []


def uneven(text: str) -> list[str]:
    """Return the rows of tables that have another number of cells than their head: two in one line, or half a row."""
    blocks = (block.strip("\n").splitlines() for block in shown.without_code(text).split("\n\n"))
    tables = [rows for rows in blocks if len(rows) > 1 and re.fullmatch(r"[ :-]*\|[ |:-]+", rows[1])]
    return [row for rows in tables for row in rows if _bars(row) != _bars(rows[1])]


def _bars(row: str) -> int:
    without_code = re.sub(r"(`+).+?\1", "code", row).rstrip()
    return without_code.removeprefix("|").removesuffix("|").count("|")


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    found = {page: uneven(text) for page, text in PAGES.items()}

    assert {page: rows for page, rows in found.items() if rows} == {}


@pytest.mark.parametrize("row", ["`a` | one `b` | two", "that goes on"])
def test_a_row_that_was_wrapped_is_found(row: str) -> None:
    assert uneven(f"word | meaning\n---|---\n{row}\n") == [row]
    assert uneven("word | meaning\n:---|---\n`a|b` | one\n | two\n\na | b | c\n") == []


def test_a_name_that_links_to_a_module_is_in_that_module() -> None:
    missing = []
    for page, link in LINKS:
        found = page.parent / link.target
        name = link.text.strip("`").rpartition(".")[2]
        code = link.text.startswith("`") and found.suffix == ".py" and "/" not in link.text
        if code and name != "py" and name not in found.read_text("utf-8"):
            missing.append((page, f"{link.text} in {link.target}"))

    assert missing == []


def test_every_path_and_name_of_the_code_that_a_page_mentions_is_there() -> None:
    mentioned = [(page, place) for page, text in PAGES.items() for place in shown.code_places(text)]
    assert mentioned
    assert [place for place in mentioned if not shown.is_in_code(*place[1])] == []


def test_a_path_or_name_that_is_gone_would_be_noticed() -> None:
    there, gone, unknown = shown.code_places(
        "`core/log/watermark.py:Watermark.low` `core/lost.py` `adapters/ports.py:lost`"
    )
    assert shown.is_in_code(*there)
    assert not shown.is_in_code(*gone)
    assert not shown.is_in_code(*unknown)


def test_the_map_in_the_readme_has_every_room_of_the_package_once_and_no_other() -> None:
    package = shown.ROOT / "services" / "combee"
    rooms = [room.name for room in package.iterdir() if (room / "__init__.py").exists()]
    modules = [module.name for module in package.glob("*.py") if module.name != "__init__.py"]
    _, tree = (shown.ROOT / "README.md").read_text("utf-8").split("## The source tree")
    targets = [Path(link.target) for link in shown.links(tree)]
    named = [target.name for target in targets if target.parent == Path("services", "combee")]

    assert sorted(named) == sorted(rooms + modules)


def test_every_page_that_the_code_names_is_there() -> None:
    named = {name for file in shown.texts() for name in shown.pages_named(file.read_text("utf-8"))}
    assert "docs/guide/http.md" in named
    assert [name for name in named if not any(shown.ROOT.glob(f"{name}*"))] == []


def test_commands_in_blocks_are_what_the_command_line_takes() -> None:
    commands = [(page, arguments) for page, text in PAGES.items() for arguments in shown.our_commands(text)]
    assert commands
    for page, arguments in commands:
        try:
            shown.parse(arguments)
        except Exception as error:
            raise AssertionError(f"{page}: combee {' '.join(arguments)}: {error}") from error


def test_commands_in_the_text_exist() -> None:
    wrong = {
        (page, mention): unknown
        for page, text in PAGES.items()
        for mention in shown.mentioned(text)
        for arguments in shown.variants(mention)
        if (unknown := shown.unknown(arguments))
    }

    assert wrong == {}


def test_a_wrong_option_or_verb_would_be_noticed() -> None:
    assert shown.unknown(["learn", "FILE", "--no-such-option"]) == ["--no-such-option"]
    assert shown.unknown(["teach", "FILE"]) == ["teach"]
    assert shown.our_commands("```bash\nA=1 combee learn x > y  # why\n```\n") == [["learn", "x"]]
    with pytest.raises(Exception, match="No such option"):
        shown.parse(["learn", "FILE", "--no-such-option"])


def test_the_page_on_integrations_names_every_extra_that_was_tested_and_links_to_the_versions() -> None:
    guide = shown.ROOT / "docs" / "guide"
    page = (guide / "integrations.md").read_text("utf-8")
    (table,) = {link.target for link in shown.links(page) if link.target.endswith(".csv")}
    rows = list(csv.DictReader((guide / table).read_text("utf-8").splitlines()))

    assert rows
    assert [row["integration"] for row in rows if f"`{row['integration']}`" not in page] == []
    assert {row["python"] for row in rows} == set(re.findall(r"on Python ([\d.]+)\.", " ".join(page.split())))


def test_the_page_on_models_says_what_the_benchmark_of_a_day_measured() -> None:
    table = (shown.ROOT / "docs" / "results" / "tables" / "day.csv").read_text("utf-8")
    page = (shown.ROOT / "docs" / "guide" / "model.md").read_text("utf-8").splitlines()
    rows = list(csv.DictReader(table.splitlines()))
    for row in rows[:-1]:  # the last one costs nearly what the one before does
        waits = "an hour" if row["a window waits"] == "3600 s" else row["a window waits"]
        begins = f"{row['reflections a day']} | {waits} | {row['in a batch']} | {row['calls']} | "
        (line,) = [line for line in page if line.startswith(begins)]
        prices = (row[f"{size} model"].partition(".")[0] for size in ("small", "middle", "large"))
        assert [price.partition(".")[0] for price in line.split(" | ")[-3:]] == list(prices)


def test_the_page_on_reliability_has_the_table_of_kafkas_kills() -> None:
    results = shown.ROOT / "docs" / "results"
    rows = csv.reader((results / "tables" / "kafka-kills.csv").read_text("utf-8").splitlines())
    page = (results / "reliability.md").read_text("utf-8").splitlines()
    lines = [" | ".join(row) for row in rows][1:]

    assert [line for line in page if line.count("|") == 9][2:] == lines
