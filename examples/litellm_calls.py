"""LiteLLM calls that learn: run it twice, and the second time the first answer is right (a simulation).

Needs "combee up --simulated" and "combee sim serve --port 8700".
"""

import json
import sys

import litellm

from combee import Client, Run
from combee.integrations.litellm import CombeeLogger
from combee.sdk import learning

ADDRESS, MODEL = sys.argv[1:] or (None, "http://127.0.0.1:8700/v1")
TICKET, TARGET = "Service desk, order 5204: A refund of 640.00 to Dev is due. Who releases it?", "a team lead"
MODEL_OPTIONS = {"model": "openai/simulated", "api_base": MODEL, "api_key": "none"}


def judge(run: Run) -> None:
    """Say how a run went; in your product a customer, a test or a colleague knows it."""
    answer = json.loads(run.answer)["final_answer"]
    run.outcome(success=answer == TARGET, answer=answer, target=TARGET)


with Client(ADDRESS) as combee:
    litellm.callbacks = [CombeeLogger(combee=combee, on_end=judge)]
    asked = [{"role": "user", "content": TICKET}]
    reply = litellm.completion(messages=asked, prompt_id="support/refunds", **MODEL_OPTIONS)
    print(reply.choices[0].message.content)
    with learning("support/refunds", client=combee) as run:  # several calls, one run
        for question in ("Refund order 8?", "And order 9?"):
            asked = [{"role": "user", "content": question}]
            litellm.completion(messages=asked, prompt_id="support/refunds", **MODEL_OPTIONS)
        run.outcome("Both were refunded.", success=True)
