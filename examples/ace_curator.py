"""ACE with Combee: twelve calls as of ACE's own loop.

OPENAI_BASE_URL=http://127.0.0.1:8700/v1 python examples/ace_curator.py simulated    (a simulation)
"""

import json
import sys

from combee.integrations.ace import CombeeCurator

LESSONS = "Ask for the order number first.", "A manager approves refunds above 100."
playbook, next_id = "## STRATEGIES & INSIGHTS\n\n## COMMON MISTAKES TO AVOID\n\n## OTHERS", 1

curator = CombeeCurator((sys.argv[1:] or ["simulated"])[0], batch_size=6)
for step in range(1, 13):
    playbook, next_id, operations, call_info = curator.curate(
        current_playbook=playbook,
        recent_reflection=json.dumps({"key_insight": LESSONS[step % 2], "bullet_tags": []}),
        question_context=f"Refund order {step}",
        current_step=step,
        total_samples=12,
        token_budget=80_000,
        playbook_stats={},
        call_id=f"step_{step}",
        next_global_id=next_id,
    )
    print(f"step {step}: {len(operations)} operations, {call_info['num_calls']} calls")
curator.close()
print(playbook)
