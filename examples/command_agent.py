"""An agent as a program, with nothing but the standard library.

agentgym train customer_support --agent-command "python3 command_agent.py"
"""

import json
import os
import sys
from urllib.request import Request, urlopen


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    key = os.environ["OPENAI_API_KEY"]
    request = Request(
        os.environ["AGENTGYM_SESSION_URL"] + path,
        data,
        {"authorization": f"Bearer {key}"},
    )
    with urlopen(request) as answer:
        return json.load(answer)


def main():
    if "AGENTGYM_SESSION_URL" not in os.environ:
        sys.exit(print(__doc__))
    task = ask("/task")
    messages, over = task["messages"], False
    while not over:
        question = {"model": "any", "messages": messages, "tools": task["tools"]}
        answer = ask("/v1/chat/completions", question)
        message = answer["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            done = ask(f"/tools/{function['name']}", json.loads(function["arguments"]))
            result = {"role": "tool", "tool_call_id": call["id"]}
            messages.append({**result, "content": done["content"]})
            over = done["over"]
        if not message.get("tool_calls"):
            said = ask("/reply", {"content": message["content"]})
            messages.append({"role": "user", "content": said["content"]})
            over = said["over"]


if __name__ == "__main__":
    main()
