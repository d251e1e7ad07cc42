"""A LangChain agent that learns: run it twice, and the second time its answers are right (a simulation).

Needs "combee up --simulated" and "combee sim serve --port 8700".
"""

import json
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from combee import Client, Run
from combee.integrations.langchain import CombeeMiddleware

ADDRESS, MODEL = sys.argv[1:] or (None, "http://127.0.0.1:8700/v1")
TICKETS = {  # what customers ask, and what turned out to be right in this shop
    "Service desk, order 5201: Ann returns unworn shoes that were delivered 24 days ago. What happens?": "refund",
    "Service desk, order 5202: Ben sends an opened headset of 80.00 back in time. How much is refunded?": "72.00",
    "Service desk, order 5203: Emil says that a lamp arrived broken. What is asked for first?": "a photo",
    "Service desk, order 5204: A refund of 640.00 to Dev is due. Who releases it?": "a team lead",
}


def paid(order: int) -> str:
    """Return the amount paid for an order."""
    return f"Order {order}: 120 were paid."


def judge(run: Run) -> None:
    """Say how a run went; in your product a customer, a test or a colleague knows it."""
    answer, target = json.loads(run.answer)["final_answer"], TICKETS[run.task]
    run.outcome(success=answer == target, answer=answer, target=target)


with Client(ADDRESS) as combee:
    learning = CombeeMiddleware("support/refunds", combee=combee, on_end=judge)
    model = ChatOpenAI(model="simulated", base_url=MODEL, api_key="none")
    agent = create_agent(model, [paid], middleware=[learning])
    for ticket in TICKETS:
        reply = agent.invoke({"messages": [{"role": "user", "content": ticket}]})
        print(reply["messages"][-1].content)
    print(combee.flush().delivered, "runs delivered")
