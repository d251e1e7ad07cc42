"""Playbooks read over HTTP: by name, version, label and format, and only if they changed."""

import weakref

import httpx
import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.core.formats.files import FORMATS
from combee.gateway.app import build
from combee.gateway.context import context_of
from combee.process.settings.loading import load_settings
from combee_schemas.playbook import Playbook
from support.gateway import asked, version

NAME = "support/refunds"
PATH = f"/v1/playbooks/{NAME}"


async def test_a_playbook_is_read_by_version_label_and_format() -> None:
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1), version(NAME, 2), version(NAME, 3, "two", "lines"))
        await gateway.labels(NAME, "production", 2)
        for query, expected in (
            ("", 3),
            ("?version=1", 1),
            ("?version=3", 3),
            ("?label=production", 2),
            ("?label=latest", 3),
        ):
            answer = await gateway.client.get(PATH + query)
            assert answer.json()["version"] == expected
            assert answer.headers["combee-version"] == str(expected)
        for query, status in (
            ("?version=9", 404),
            ("?label=none", 404),
            ("?version=1&label=production", 400),
            ("?version=0", 422),
            ("?format=pdf", 422),
        ):
            assert (await gateway.client.get(PATH + query)).status_code == status
        assert (await gateway.client.get(PATH + "?format=ace")).text.startswith("## STRATEGIES")
        answer = await gateway.client.get(PATH + "?format=md")
        assert answer.headers["content-type"].startswith("text/markdown")
        assert answer.text.startswith(f"# {NAME} (version 3)")
        assert (await gateway.client.get(PATH + "?format=gepa")).status_code == 409
        for form in FORMATS:
            assert (await gateway.client.get(f"{PATH}?format={form}")).status_code in {200, 409}


async def test_what_is_only_proposed_is_told_on_request() -> None:
    whole = version(NAME, 1, "sure", "perhaps")
    sure, perhaps = whole.entries
    entries = (sure, perhaps.model_copy(update={"state": "proposed"}))
    async with asked() as gateway:
        await gateway.knows(whole.model_copy(update={"entries": entries}))
        first = await gateway.client.get(PATH)
        assert [(entry["content"], entry["state"]) for entry in first.json()["entries"]] == [
            ("sure", "active")
        ]
        everything = await gateway.client.get(
            f"{PATH}?state=all", headers={"if-none-match": first.headers["etag"]}
        )
        assert [entry["state"] for entry in everything.json()["entries"]] == ["active", "proposed"]
        for form in ("ace", "md"):
            assert "perhaps" not in (await gateway.client.get(f"{PATH}?format={form}")).text
            assert "perhaps" in (await gateway.client.get(f"{PATH}?format={form}&state=all")).text
        assert (await gateway.client.get(f"{PATH}?state=some")).status_code == 422
        rows = (await gateway.client.get("/v1/playbooks")).json()["playbooks"]
        assert [(row["entries"], row["proposed"]) for row in rows] == [(1, 1)]


@pytest.mark.parametrize(("form", "counted"), [("ace", "helpful=1"), ("md", "(+1 -0)")])
async def test_a_prompt_gets_a_text_without_counters(form: str, counted: str) -> None:
    first = version(NAME, 1, "ask")
    entry = first.entries[0].model_copy(update={"helpful": 1})
    second = version(NAME, 2, entries=(entry,))
    async with asked() as gateway:
        await gateway.knows(first, second)
        own = await gateway.client.get(f"{PATH}?format={form}")
        bare = await gateway.client.get(f"{PATH}?format={form}&counters=false")
        before = await gateway.client.get(f"{PATH}?format={form}&counters=false&version=1")
        assert counted in own.text
        assert counted not in bare.text
        assert before.text.splitlines()[1:] == bare.text.splitlines()[1:], "nothing was learned"
        assert own.headers["etag"] != bare.headers["etag"]
        whole = await gateway.client.get(f"{PATH}?counters=false")
        assert (whole.json()["counters"], whole.json()["entries"][0]["helpful"]) == (True, 1)


async def test_a_client_that_has_it_already_is_told_so() -> None:
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1), version("other", 1))
        first = await gateway.client.get(PATH)
        etag = first.headers["etag"]
        for given in (etag, f"W/{etag}", f'"x", {etag}', "*"):
            answer = await gateway.client.get(PATH, headers={"if-none-match": given})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        for path, given in ((PATH, '"x"'), (f"{PATH}?format=md", etag), ("/v1/playbooks/other", etag)):
            answer = await gateway.client.get(path, headers={"if-none-match": given})
            assert answer.status_code == 200
        await gateway.knows(version(NAME, 2))
        assert (await gateway.client.get(PATH, headers={"if-none-match": etag})).json()["version"] == 2
        old = await gateway.client.get(f"{PATH}?version=1", headers={"if-none-match": etag})
        assert old.status_code == 304
        assert (await gateway.client.get(f"{PATH}?version=1")).content == first.content


async def test_names_may_contain_slashes_encoded_or_not_and_end_like_an_endpoint() -> None:
    odd = ("support/versions", "support/events", "a/b/c", "diff", "a/promote")
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1), *(version(name, 1) for name in odd))
        for name in (NAME, *odd):
            for slash in ("%2F", "%2f"):
                answer = await gateway.client.get(f"/v1/playbooks/{name.replace('/', slash)}")
                assert answer.json()["name"] == name
                answer = await gateway.client.get(f"/v1/playbooks/{name.replace('/', slash)}/versions")
                assert answer.json()["name"] == name
        assert (await gateway.client.get(f"{PATH}/versions")).json()["name"] == NAME
        assert (await gateway.client.get("/v1/playbooks/a/b/c")).json()["name"] == "a/b/c"
        assert (await gateway.client.get("/v1/playbooks/support/promote")).status_code == 405
        for wrong in ("%00", "-a", "a%20b", "a%252Fb", "a" * 201):
            assert (await gateway.client.get(f"/v1/playbooks/{wrong}")).status_code in {404, 422}


async def test_versions_are_listed_newest_first_page_by_page() -> None:
    async with asked() as gateway:
        await gateway.knows(*(version(NAME, number) for number in range(1, 8)), version("other", 1))
        found, before = [], ""
        while True:
            page = (await gateway.client.get(f"{PATH}/versions?limit=3{before}")).json()
            found += [row["version"] for row in page["versions"]]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
        assert found == [7, 6, 5, 4, 3, 2, 1]
        await gateway.knows(version(NAME, 8))
        assert (await gateway.client.get(f"{PATH}/versions?limit=1")).json()["versions"][0]["version"] == 8


async def test_a_list_of_versions_holds_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked() as gateway:
        await gateway.knows(*(version(NAME, number) for number in range(1, 8)))
        held: list[weakref.ref[Playbook]] = []
        most = 0

        async def exactly(name: str, number: int) -> Playbook:
            nonlocal most
            most = max(most, sum(each() is not None for each in held))
            made = version(name, number)
            held.append(weakref.ref(made))
            return made

        monkeypatch.setattr(gateway.context.history, "exactly", exactly)
        assert len((await gateway.client.get(f"{PATH}/versions")).json()["versions"]) == 7
        assert most <= 1


async def test_two_versions_are_compared_entry_by_entry() -> None:
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1, "a", "b"), version(NAME, 2, "a", "c", "d"))
        found = (await gateway.client.get(f"{PATH}/diff?from=1&to=2")).json()
        assert [one["content"] for one in found["added"]] == ["d"]
        assert [(one["before"], one["after"]) for one in found["changed"]] == [("b", "c")]
        assert found["unchanged"] == 1
        all_of_it = (await gateway.client.get(f"{PATH}/diff?from=0&to=2")).json()
        assert len(all_of_it["added"]) == 3
        assert (await gateway.client.get(f"{PATH}/diff?from=1&to=9")).status_code == 404
        assert (await gateway.client.get(f"{PATH}/diff?from=1")).status_code == 422


async def test_playbooks_are_listed_by_name_page_by_page_without_deleted_ones() -> None:
    async with asked() as gateway:
        await gateway.knows(*(version(f"p/{letter}", 1) for letter in "dacb"), version("q", 1))
        await gateway.knows(version("q", 2, origin="delete", entries=()))
        await gateway.labels("p/a", "production", 1)
        page = (await gateway.client.get("/v1/playbooks?limit=2&prefix=p/")).json()
        assert [one["name"] for one in page["playbooks"]] == ["p/a", "p/b"]
        assert page["playbooks"][0]["labels"] == {"production": 1}
        rest = (await gateway.client.get(f"/v1/playbooks?after={page['next']}")).json()
        assert [one["name"] for one in rest["playbooks"]] == ["p/c", "p/d"]
        assert rest["next"] is None
        assert (await gateway.client.get("/v1/playbooks/q")).status_code == 404


async def test_a_gateway_that_has_not_read_everything_denies_nothing() -> None:
    context = context_of(MemoryLog(SystemClock()), load_settings(), SystemClock())
    transport = httpx.ASGITransport(build(context))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in ("/v1/playbooks", PATH, f"{PATH}/versions", f"{PATH}/events"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("path", ["/v1/status", "/v1/ledger", "/v1/playbooks", "/metrics", "/openapi.json"])
async def test_what_the_deployment_does_can_be_asked(path: str) -> None:
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1))
        await gateway.client.get(PATH)
        answer = await gateway.client.get(path)
        assert answer.status_code == 200
        if path == "/metrics":
            assert 'route="/v1/playbooks/{name}",status="200"} 1.0' in answer.text
            assert "combee_condition" in answer.text


async def test_an_unknown_batch_and_an_unknown_page_are_problems() -> None:
    async with asked() as gateway:
        for path in ("/v1/batches/none", "/v1/none", "/none", "/v1/playbooks/"):
            answer = await gateway.client.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == 404


@pytest.mark.parametrize(
    "name",
    ["support/%2e%2e/other", "support%2F..%2Fother", "support/", "support//refunds", "support%5C..", "a%00b"],
)
async def test_a_name_that_a_path_could_read_otherwise_is_refused_wherever_it_comes(name: str) -> None:
    async with asked() as gateway:
        await gateway.knows(version("support/refunds", 1), version("other", 1))
        client, text = gateway.client, httpx.URL(f"http://host/{name}").path[1:]
        assert (await client.get(f"/v1/playbooks/{name}")).status_code in {404, 422}
        assert (await client.get(f"/v1/playbooks/{name}/versions")).status_code in {404, 422}
        for path, body in (
            ("reflections", {"key_insight": "Ask first."}),
            ("traces", {"task": "a task"}),
            ("outcomes", {"run_id": "r", "success": True}),
        ):
            answer = await client.post(f"/v1/{path}", json={"playbook": text, **body})
            assert answer.status_code == 422, answer.text
