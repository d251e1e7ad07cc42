"""An agent that learns: it publishes its lesson, and receives the lessons of all agents.

Usage: python examples/agent.py [ADDRESS]    a gateway's address, or Kafka's (HOST:PORT); else what runs here
"""

import sys
import threading

from combee import Client, PlaybookView

PLAYBOOK = "support/refunds"
LESSONS = (
    "Refunds above 100 need a manager's approval.",
    "Check the date of purchase first: after 30 days only store credit is possible.",
    "An opened item is refunded at 85 % of its price.",
)
PATIENCE_S = 90

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else None

with Client(ADDRESS) as combee:
    before = combee.playbook(PLAYBOOK, fallback="Be kind and exact.").version
    arrived = threading.Event()

    def tell(update: PlaybookView) -> None:
        if update.version > before:
            print(f"--- pushed: version {update.version}\n{update.render('md')}")
            arrived.set()

    combee.on_update(PLAYBOOK, tell)
    for lesson in LESSONS:
        combee.publish(playbook=PLAYBOOK, key_insight=lesson)
    counts = combee.flush(timeout_s=10)
    if not counts.delivered:
        sys.exit(f"no deployment answers at {combee.address}: is `combee up` running?")
    print(f"{counts.delivered} reflections acknowledged; the next version comes when their window closes")
    if not arrived.wait(PATIENCE_S):
        sys.exit(f"no new version within {PATIENCE_S} s: is `combee up` running? `combee doctor` says more")
