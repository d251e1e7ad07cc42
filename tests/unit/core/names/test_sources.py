"""What proves a source: a forged, borrowed or missing proof proves nothing, and names count as the setting says."""

from combee.adapters.ed25519 import key_proof, with_public_key
from combee.core.names.identity import claimed_identities
from combee.core.names.sources import (
    NOBODY,
    SERVICES,
    UNPROVEN,
    Header,
    KnownSources,
    Signer,
    gateway_source,
    names_of,
    proof,
    secret_proof,
    source_name,
    source_text,
    sources_text,
    with_secret,
)
from combee.process.worker.dead_letters import dead_letter
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.records import PROOF_HEADER, Record
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Seen
from combee_schemas.topics import DEAD_LETTERS
from support.clock import ManualClock
from support.rows import each_row

SECRET, OTHER, OURS = b"the secret of shop", b"the secret of desk", b"what services share"
TOPIC, VALUE = "reflections", b"the record's bytes"
SHOP = Source(name="shop")
PRIVATE = bytes(range(32))
PUBLIC = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
KNOWN = KnownSources(
    checks={
        "shop": ("secret", with_secret(SECRET)),
        "desk": ("secret", with_secret(OTHER)),
        "lab": ("key", with_public_key(PUBLIC)),
    },
    services=with_secret(OURS),
)


def proven(*headers: Header, source: Source | None = SHOP, topic: str = TOPIC, value: bytes = VALUE) -> str:
    """Return how a record proves its source, and whether its proof counts as forged."""
    effective = KNOWN.effective(topic, value, headers, source)
    by = effective.source.proven if effective.source else ""
    return f"{by}{' forged' if effective.is_forged else ''}"


def test_a_secret_a_key_pair_and_the_services_prove_a_name() -> None:
    assert proven(secret_proof(SECRET, TOPIC, "shop", VALUE)) == "secret"
    lab = Source(name="lab")
    assert proven(key_proof(PRIVATE, TOPIC, "lab", VALUE), source=lab) == "key"
    vouched = secret_proof(OURS, TOPIC, "key:web", VALUE, scheme=SERVICES)
    assert proven(vouched, source=gateway_source("web", proven=True)) == "gateway"


@each_row(
    "header",
    [
        secret_proof(OTHER, TOPIC, "shop", VALUE),  # somebody else's secret
        secret_proof(OTHER, TOPIC, "desk", VALUE),  # somebody else's proof
        secret_proof(SECRET, "traces", "shop", VALUE),  # of another topic
        secret_proof(SECRET, TOPIC, "shop", b"other bytes"),
        secret_proof(SECRET, TOPIC, "shop", VALUE, scheme=SERVICES),  # the services' place, not their secret
        secret_proof(SECRET, TOPIC, "shop", VALUE, scheme="ed25519"),
        proof("hmac-sha256", b""),
        (PROOF_HEADER, b"hmac-sha256:no base64!"),
        (PROOF_HEADER, b"\xff"),
        (PROOF_HEADER, b""),
    ],
)
def test_a_forged_proof_proves_nothing_and_is_told(header: Header) -> None:
    assert proven(header) == " forged"


def test_a_proof_of_a_name_that_nobody_knows_proves_nothing() -> None:
    stranger = Source(name="stranger")
    assert proven(secret_proof(SECRET, TOPIC, "stranger", VALUE), source=stranger) == " forged"
    assert proven(secret_proof(SECRET, TOPIC, "shop", VALUE), source=None) == " forged"
    forged = key_proof(bytes(32), TOPIC, "lab", VALUE)
    assert proven(forged, source=Source(name="lab")) == " forged"


def test_a_claim_without_proof_keeps_its_name_and_proves_nothing_whatever_it_says() -> None:
    effective = KNOWN.effective(TOPIC, VALUE, (), SHOP.model_copy(update={"proven": "key"}))
    assert (effective.source, effective.is_forged) == (SHOP, False)
    assert NOBODY.effective(TOPIC, VALUE, (), SHOP).source is SHOP
    assert NOBODY.effective(TOPIC, VALUE, (), None).source is None


def test_where_rights_let_one_source_write_all_is_its() -> None:
    owned = KnownSources(prefix_owner="shop")
    for claimed in (None, Source(name="desk"), Source(name="desk", proven="key")):
        assert owned.effective(TOPIC, VALUE, (), claimed).source == Source(name="shop", proven="prefix")


def test_only_proven_names_count_where_the_setting_says_so() -> None:
    sure = Source(name="shop", proven="secret")
    assert [source_name(each, "declared") for each in (sure, SHOP, None)] == ["shop", "shop", ""]
    assert [source_name(each, "proven") for each in (sure, SHOP, None)] == ["shop", UNPROVEN, UNPROVEN]
    seen = [Seen(reflection_id=f"r-{n}", offset=n, source=each) for n, each in enumerate((sure, SHOP, None))]
    assert names_of(seen, "declared") == {"r-0": "shop", "r-1": "shop"}
    assert names_of(seen, "proven") == {"r-0": "shop", "r-1": UNPROVEN, "r-2": UNPROVEN}


def test_a_producer_signs_what_it_declares_and_nothing_else() -> None:
    signer = Signer(name="shop", secret=SECRET)
    mine = signer.declared(Reflection(reflection_id="r-1", playbook="p", key_insight="a"))
    assert isinstance(mine, Reflection)
    assert mine.source == SHOP
    record = signer.signed(topics.REFLECTIONS.record(mine), mine.source)
    assert KNOWN.effective(TOPIC, record.value or b"", record.headers, mine.source).source == Source(
        name="shop", proven="secret"
    )
    other = mine.model_copy(update={"source": Source(name="desk")})
    assert signer.declared(other) is other
    assert signer.signed(topics.REFLECTIONS.record(other), other.source).headers == ()
    assert Signer(name="shop").signed(topics.REFLECTIONS.record(mine), SHOP).headers == ()
    assert "secret" not in repr(signer)


def test_people_are_told_whether_a_name_is_proven() -> None:
    assert source_text(SHOP) == "shop (unproven)"
    assert source_text(Source(name="shop", proven="key")) == "shop (proven by key)"
    assert source_text(Source(name='shop (proven by key)\n"')) == '"shop (proven by key)\\n\\"" (unproven)'
    assert (source_text(None), sources_text({UNPROVEN: 4})) == (UNPROVEN, "")
    assert sources_text({"shop": 3, UNPROVEN: 1}) == "3 of shop, 1 of unproven"


def test_of_several_proofs_the_last_counts_for_all_who_read_it() -> None:
    good, bad = secret_proof(SECRET, TOPIC, "shop", VALUE), proof(SERVICES, b"forged")
    assert (proven(bad, good), proven(good, bad)) == ("secret", " forged")
    record = Record(
        topic=TOPIC, partition=0, offset=0, timestamp_ms=0, key=None, value=VALUE, headers=(good, bad)
    )
    letter = DEAD_LETTERS.read(dead_letter(record, service="shuffle", reason="-", clock=ManualClock()))
    assert letter.proof == bad[1]


def test_a_proof_without_a_value_is_none_for_all_who_read_it() -> None:
    for headers in (
        [(PROOF_HEADER, None)],
        [secret_proof(SECRET, TOPIC, "shop", VALUE), (PROOF_HEADER, None)],
    ):
        assert KNOWN.effective(TOPIC, VALUE, headers, SHOP) == KNOWN.effective(TOPIC, VALUE, (), SHOP)
        assert claimed_identities("r-1", SHOP, headers) == ("r-1",)
