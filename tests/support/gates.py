"""A gated deployment: batches, verdicts and commands sent to publish, and what the log says of the gate then."""

from combee.adapters.memory import MemoryLog
from combee.core.gate.gate import Gate, gate_of
from combee.core.gate.policy import GatePolicy
from combee.core.names import identity
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import Decision, Judge, Verdict
from combee_schemas.plan import PlanSettings, Probation
from combee_schemas.playbook import Label, Playbook
from combee_schemas.scan import Operation, OperationKind, Seen, Update
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.ledger import NAME, outgoing
from support.planned import PlanningDeployment


def deployment_with(*judges: Judge) -> PlanningDeployment:
    return PlanningDeployment(gates=GatePolicy(judges=judges))


def add(content: str, *evidence: str) -> Operation:
    return Operation(kind=OperationKind.ADD, section="OTHERS", content=content, evidence=evidence)


def update(sequence: int, *operations: Operation) -> Update:
    ids = sorted({each for operation in operations for each in operation.evidence})
    plan = {
        "batch_id": identity.batch_id(NAME, sequence),
        "playbook": NAME,
        "sequence": sequence,
        "widths": (1,),
        "base_version": sequence - 1,
        "reflections": len(ids),
        "through_offset": 10 * sequence,
        "manifest_offset": sequence,
        "reason": "size",
    }
    seen = [Seen(reflection_id=each, offset=10 * sequence + at) for at, each in enumerate(ids)]
    return flat(Update, plan=plan, node_id=f"n-{sequence}", status="ok", operations=operations, seen=seen)


def on_probation(update: Update) -> Update:
    """Return an update of a batch that lets agents see what two reflections support."""
    settings = PlanSettings(probation=Probation(reflections=2))
    return update.model_copy(update={"plan": update.plan.model_copy(update={"settings": settings})})


def batch(number: int) -> Update:
    """Return a batch whose one reflection teaches one lesson."""
    return update(number, add(f"lesson {number}", f"r-{number}"))


def verdict(candidate: int, production: int, *, accepts: bool = True, judge: Judge = "evaluate") -> Verdict:
    return Verdict(
        playbook=NAME,
        candidate=candidate,
        production=production,
        judge=judge,
        accepts=accepts,
        reason="measured",
        figures={"n": 40},
        judged_by="model m",
    )


def command(kind: str, command_id: str = "c", **fields: object) -> Command:
    return Command.model_validate({"command_id": command_id, "playbook": NAME, "kind": kind, **fields})


def labels(log: MemoryLog) -> dict[str, Label]:
    """Return the labels as they were moved last."""
    known: dict[str, Label] = {}
    for record in ledger.records(log, topics.LABELS):
        label = topics.LABELS.read_or_none(record)
        name = topics.key_of(record).partition("#")[2]
        known.pop(name, None)
        if label is not None:
            known[name] = label
    return known


def gate(log: MemoryLog) -> Gate:
    found = gate_of(labels(log))
    assert found is not None
    return found


def places(log: MemoryLog) -> tuple[int, int]:
    """Return production's version and the candidate's; 0: none."""
    now = gate(log)
    return now.production.version, now.candidate.version if now.candidate else 0


def decisions(log: MemoryLog) -> list[Decision]:
    return ledger.messages(log, topics.DECISIONS, Decision)


def contents(version: Playbook) -> list[str]:
    return [entry.content for entry in version.entries]


def over(deployment: Deployment) -> bool:
    return not [at for at in ledger.behind(deployment.log) if at[0] == "publish"]


async def send(deployment: PlanningDeployment, *messages: Update | Command | Verdict) -> None:
    """Send messages one after the other, each once the one before has had its effect."""
    async with deployment.running(["publish"]):
        for message in messages:
            await deployment.log.produce(outgoing(message))
            await deployment.until(lambda: over(deployment))
