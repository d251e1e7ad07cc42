"""A coding assistant's side of `combee mcp`: it publishes a lesson, is told of the new version and reads it.

Usage: python examples/mcp_assistant.py [GATEWAY]    needs combee[mcp]
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

GATEWAY = ["--gateway", sys.argv[1]] if len(sys.argv) > 1 else []  # else what runs on this machine
PLAYBOOK = "support/refunds"
URI = f"combee://playbooks/{PLAYBOOK}"
LESSON = {"playbook": PLAYBOOK, "key_insight": "Refunds above 100 need a manager's approval."}


async def main() -> None:
    server = StdioServerParameters(command="combee", args=["mcp", *GATEWAY], env=dict(os.environ))
    async with Client(server) as assistant, assistant.listen(resource_subscriptions=[URI]) as news:
        answer = await assistant.call_tool("publish_reflection", LESSON)
        print(answer.content[0].text)
        print("told:", await anext(news))
        for page in (await assistant.read_resource(URI)).contents:
            print(page.text)


asyncio.run(main())
