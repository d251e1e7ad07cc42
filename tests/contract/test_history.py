"""A version by its number, in memory and on Kafka, where the marks of transactions stand among the versions."""

from combee.adapters.ports import Log
from combee.log.history import History
from combee_schemas import topics
from support.gateway import version

PACES = {"support/refunds": 1, "support/returns": 3, "p": 20}
"""Playbook → it gets a version in one of so many transactions."""
TRANSACTIONS = 60


async def test_versions_among_transactions_of_others_are_found_by_number(log: Log) -> None:
    transactor = await log.transactor("publish-0")
    numbers = dict.fromkeys(PACES, 0)
    for at in range(TRANSACTIONS):
        async with transactor.transaction() as transaction:
            for name, pace in PACES.items():
                if at % pace == 0:
                    numbers[name] += 1
                    await transaction.send(topics.HISTORY.record(version(name, numbers[name])))
    await transactor.close()
    await (await log.transactor("publish-0")).close()  # what is committed is visible by then

    for name, newest in numbers.items():
        reader, other = History(log), History(log)
        for number in (1, newest // 2, newest):
            found = await reader.exactly(name, number)
            assert found
            assert (found.name, found.version) == (name, number)
        assert await reader.exactly(name, newest + 1) is None
        assert sorted(await other.places(name)) == list(range(1, newest + 1))
