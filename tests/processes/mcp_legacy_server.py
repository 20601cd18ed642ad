"""Hand-written MCP server in the style of 2024: prints a greeting to standard output, and has one tool."""

import json
import sys

RESULTS = {
    "initialize": {
        "protocolVersion": "2024-11-05",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "older", "version": "0.1"},
    },
    "tools/list": {"tools": [{"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "Good day."}]},
}


def main() -> None:
    """Answer requests line by line."""
    sys.stdout.write("Welcome to the older server!\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        if (result := RESULTS.get(message["method"])) is not None:
            answer["result"] = result
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
