"""A LangChain agent that learns. Needs "combee up --simulated" and "combee sim serve --port 8700" (a simulation)."""

import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from combee import Client, Run
from combee.integrations.langchain import CombeeMiddleware

ADDRESS, MODEL = sys.argv[1:] or (None, "http://127.0.0.1:8700/v1")


def paid(order: int) -> str:
    """Return the amount paid for an order."""
    return f"Order {order}: 120 were paid."


def judge(run: Run) -> None:
    run.outcome(success="final_answer" in run.answer)  # what your own checks say


with Client(ADDRESS) as combee:
    learning = CombeeMiddleware("support/refunds", combee=combee, on_end=judge)
    model = ChatOpenAI(model="simulated", base_url=MODEL, api_key="none")
    agent = create_agent(model, [paid], middleware=[learning])
    for order in range(1, 5):
        reply = agent.invoke({"messages": [{"role": "user", "content": f"Refund order {order}?"}]})
        print(reply["messages"][-1].content)
    print(combee.flush().delivered, "runs delivered")
