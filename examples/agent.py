"""A refund agent that learns: it answers tickets with OpenAI's client, and each run is told how it went.

Usage: python examples/agent.py [ADDRESS [MODEL_URL]]

ADDRESS is a gateway's, or Kafka's as HOST:PORT; by default the "combee up" on this machine. MODEL_URL is by default
the stand-in model, a simulation: combee sim serve --port 8700.
"""

import json
import sys
import threading

from openai import OpenAI

from combee import Client, Run, wrap_openai

PLAYBOOK = "support/refunds"
TICKETS = {  # what customers ask, and what turned out to be right in this shop
    "Service desk, order 5201: Ann returns unworn shoes that were delivered 24 days ago. What happens?": "refund",
    "Service desk, order 5202: Ben sends an opened headset of 80.00 back in time. How much is refunded?": "72.00",
    "Service desk, order 5203: Emil says that a lamp arrived broken. What is asked for first?": "a photo",
    "Service desk, order 5204: A refund of 640.00 to Dev is due. Who releases it?": "a team lead",
}
PATIENCE_S = 90

address, model_url = [*sys.argv[1:], None, None][:2]
combee = Client(address)


def answer_in(reply: str) -> str:
    return str(json.loads(reply)["final_answer"])


def tell(run: Run) -> None:
    """Say how a run went; in your product a customer, a test or a colleague knows it."""
    answer, target = answer_in(run.answer), TICKETS[run.task]
    run.outcome(success=answer == target, answer=answer, target=target)


openai = wrap_openai(
    OpenAI(base_url=model_url or "http://127.0.0.1:8700/v1", api_key="none"),
    playbook=PLAYBOOK,
    combee=combee,
    on_end=tell,
)


def answer_all(known: str) -> None:
    right = 0
    for ticket, answer in TICKETS.items():
        messages = [{"role": "user", "content": ticket}]
        reply = openai.chat.completions.create(model="simulated", messages=messages)
        right += answer_in(reply.choices[0].message.content) == answer
    print(f"{known}: {right} of {len(TICKETS)} tickets right", flush=True)


with combee:
    before = combee.playbook(PLAYBOOK).version
    newer = threading.Event()
    combee.on_update(PLAYBOOK, lambda playbook: playbook.version > before and newer.set())
    answer_all(f"with version {before}" if before else "without a playbook")
    if not combee.flush(timeout_s=10).delivered:
        sys.exit(f"no deployment answers at {combee.address}: is `combee up` running?")
    if not newer.wait(PATIENCE_S):
        sys.exit(f"no new version within {PATIENCE_S} s: `combee doctor` says more")
    learned = combee.playbook(PLAYBOOK)
    answer_all(f"with version {learned.version}")
    for entry in learned.entries:
        print(f"- {entry.content}")
