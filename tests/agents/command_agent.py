"""An agent as a program, with nothing but the standard library; may misbehave."""

import json
import os
import sys
import time
from urllib.request import Request, urlopen

SESSION = os.environ["AGENTGYM_SESSION_URL"]
KEY = os.environ["OPENAI_API_KEY"]


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = Request(SESSION + path, data, {"authorization": f"Bearer {KEY}"})
    with urlopen(request) as answer:
        return json.load(answer)


def main():
    task = ask("/task")
    messages = task["messages"]
    over = False
    while not over:
        answer = ask(
            "/v1/chat/completions",
            {"model": "m", "messages": messages, "tools": task["tools"]},
        )
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


match sys.argv[1:]:
    case ["exit", code]:
        print("I give up")
        sys.exit(int(code))
    case ["hang", folder]:
        # With a child that leaves the process group, and heeds no signal.
        code = (
            "import os, signal, time; os.setsid();"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            f"open({folder!r} + '/' + str(os.getpid()), 'w').close();"
            "time.sleep(600)"
        )
        os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
        time.sleep(600)
    case ["killed"]:
        os.kill(os.getpid(), 9)
    case ["noisy"]:
        while True:
            sys.stdout.write("x" * 65536)
    case _:
        main()
