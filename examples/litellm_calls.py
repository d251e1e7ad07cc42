"""LiteLLM with Combee. Needs "combee up --simulated" and "combee sim serve --port 8700" (a simulation)."""

import sys

import litellm

from combee import Client, Run
from combee.integrations.litellm import CombeeLogger
from combee.sdk import learning

ADDRESS, MODEL = sys.argv[1:] or (None, "http://127.0.0.1:8700/v1")
MODEL_OPTIONS = {"model": "openai/simulated", "api_base": MODEL, "api_key": "none"}


def judge(run: Run) -> None:
    run.outcome(success="final_answer" in run.answer)  # what your own checks say


with Client(ADDRESS) as combee:
    litellm.callbacks = [CombeeLogger(combee=combee, on_end=judge)]
    asked = [{"role": "user", "content": "Refund order 7?"}]
    reply = litellm.completion(messages=asked, prompt_id="support/refunds", **MODEL_OPTIONS)
    print(reply.choices[0].message.content)
    with learning("support/refunds", client=combee) as run:  # several calls, one run
        for question in ("Refund order 8?", "And order 9?"):
            asked = [{"role": "user", "content": question}]
            litellm.completion(messages=asked, prompt_id="support/refunds", **MODEL_OPTIONS)
        run.outcome("Both were refunded.", success=True)
