"""An agent of OpenAI's Agents SDK that learns: run it twice, and the second answer is right (a simulation).

Needs "combee up --simulated" and "combee sim serve --port 8700".
"""

import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from combee import Client, Run
from combee.integrations.openai_agents import CombeeHooks

ADDRESS, MODEL = sys.argv[1:] or (None, "http://127.0.0.1:8700/v1")
TICKET, TARGET = "Service desk, order 5204: A refund of 640.00 to Dev is due. Who releases it?", "a team lead"


@function_tool
def paid(order: int) -> str:
    """Return the amount paid for an order."""
    return f"Order {order}: 120 were paid."


def judge(run: Run) -> None:
    """Say how a run went; in your product a customer, a test or a colleague knows it."""
    answer = json.loads(run.answer)["final_answer"]
    run.outcome(success=answer == TARGET, answer=answer, target=TARGET)


set_tracing_disabled(disabled=True)  # no key of OpenAI's here
with Client(ADDRESS) as combee:
    learning = CombeeHooks("support/refunds", combee=combee, on_end=judge)
    model = OpenAIChatCompletionsModel("simulated", AsyncOpenAI(base_url=MODEL, api_key="none"))
    agent = Agent("Refunds", instructions=learning.instructions("Be kind."), tools=[paid], model=model)
    print(Runner.run_sync(agent, TICKET, hooks=learning).final_output)
    print(combee.flush().delivered, "runs delivered")
