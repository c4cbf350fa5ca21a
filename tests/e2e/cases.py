"""What every client does on every server, and what it must see: the data of these tests."""

TOO_LARGE_KIB = 100  # the servers' result_limit is 64 KiB
RESULT_LIMIT = "64KiB"
STALL_S = 4  # the `slow` server's time limit is 1 s
PROGRESS_STEPS = 5

MODERN_PIN = "2026-07-28"
CLIENTS = [  # name, interpreter, driver, mode, eras that it can speak without the gateway's help
    ("ts-sdk 1.32.2", "node", "ts1.mjs", "", {"legacy"}),
    ("ts-client 2.4.0 default", "node", "ts2.mjs", "default", {"legacy"}),
    ("ts-client 2.4.0 auto", "node", "ts2.mjs", "auto", {"legacy", "modern"}),
    ("ts-client 2.4.0 pinned", "node", "ts2.mjs", MODERN_PIN, {"modern"}),
    ("python mcp 1.30.0", "legacy", "py1.py", "", {"legacy"}),
    ("python mcp 2.3.0 legacy", "modern", "py2.py", "legacy", {"legacy"}),
    ("python mcp 2.3.0 auto", "modern", "py2.py", "auto", {"legacy", "modern"}),
    ("python mcp 2.3.0 pinned", "modern", "py2.py", MODERN_PIN, {"modern"}),
]
# One of each SDK generation meets a time limit: a fifth timeout in a row would open the server's breaker.
STALLED_CLIENTS = ("ts-sdk 1.32.2", "ts-client 2.4.0 auto", "python mcp 1.30.0", "python mcp 2.3.0 auto")
ERAS = {"fast": {"legacy", "modern"}, "every": {"legacy"}, "modern": {"modern"}}


class Case:
    """One call and what the client must see of it.

    `want` is ("text", part) | ("structured", value) | ("failed", part) | ("refused", code) | ("unknown", None);
    `gate` marks what only the gateway answers.
    """

    def __init__(self, tool, arguments, want, progress=0):
        self.tool, self.arguments, self.want, self.progress = tool, arguments, want, progress
        self.gate = want[0] in ("refused", "unknown")

    def label(self):
        return f"{self.tool}: {self.want[1] if self.want[0] == 'refused' else self.want[0]}"


def refused(tool, arguments, code):
    return Case(tool, arguments, ("refused", code))


CASES = {
    "fast": [
        Case("add", {"a": 2, "b": 3}, ("structured", {"result": 5})),
        Case("echo", {"text": "caf\u00e9 \u2615 \\u0041"}, ("text", "caf\u00e9 \u2615 \\u0041")),
        Case("count", {"to": PROGRESS_STEPS}, ("text", f"counted to {PROGRESS_STEPS}"), progress=PROGRESS_STEPS),
        Case("fail", {"message": "no such row"}, ("failed", "no such row")),
        refused("add", {"a": "two", "b": 3}, "invalid_tool_arguments"),
        refused("echo", {"text": 5}, "invalid_tool_arguments"),
        refused("big", {"kib": TOO_LARGE_KIB}, "tool_result_too_large"),
        refused("erase", {"path": "/"}, "tool_not_allowed"),
        refused("draft", {"text": "x"}, "tool_not_approved"),
        Case("nothing", {}, ("unknown", None)),
    ],
    "every": [
        Case("echo", {"message": "hello"}, ("text", "hello")),
        Case("get-sum", {"a": 2, "b": 3}, ("text", "5")),
        Case("get-structured-content", {"location": "Chicago"}, ("text", "temperature")),
        Case("trigger-long-running-operation", {"duration": 1, "steps": 4}, ("text", "completed"), progress=4),
        Case("get-resource-links", {"count": 2}, ("text", "resource")),
        refused("get-structured-content", {"location": 7}, "invalid_tool_arguments"),
        refused("get-sum", {"a": "two"}, "invalid_tool_arguments"),
        refused("get-env", {}, "tool_not_allowed"),
        refused("gzip-file-as-resource", {}, "tool_not_approved"),
        refused("get-annotated-message", {"messageType": "error"}, "tool_definition_changed"),
        Case("nothing", {}, ("unknown", None)),
    ],
    "modern": [
        Case("add", {"a": 2, "b": 3}, ("structured", {"sum": 5})),
        Case("echo", {"text": "caf\u00e9 \u2615"}, ("text", "caf\u00e9 \u2615")),
        Case("count", {"to": PROGRESS_STEPS}, ("text", f"counted to {PROGRESS_STEPS}"), progress=PROGRESS_STEPS),
        Case("big", {"kib": 24}, ("text", "xxxx")),
        Case("fail", {"message": "no such row"}, ("failed", "no such row")),
        refused("add", {"a": "two", "b": 3}, "invalid_tool_arguments"),
        refused("add", {}, "invalid_tool_arguments"),
        refused("echo", {"text": 5}, "invalid_tool_arguments"),
        refused("big", {"kib": TOO_LARGE_KIB}, "tool_result_too_large"),
        refused("reject", {"message": "the vault is closed"}, "upstream_rejected"),
        refused("liar", {}, "tool_result_invalid"),
        refused("erase", {"path": "/"}, "tool_not_allowed"),
        refused("draft", {"text": "x"}, "tool_not_approved"),
        Case("nothing", {}, ("unknown", None)),
    ],
    "slow": [refused("stall", {"seconds": STALL_S}, "upstream_timeout")],
}
EVERY_READ = ["echo", "get-sum", "get-structured-content", "trigger-long-running-operation", "get-resource-links"]
DRIFT = refused("forecast", {"city": "Bern"}, "tool_definition_changed")
DRIFTING = ("fast", "modern")

# What the key may use, and what is pinned as which class. `stale` is pinned to a definition that the server never had.
POLICY = {
    "fast": {
        "access": "read",
        "read": ["add", "echo", "count", "big", "fail", "forecast"],
        "write": ["erase"],
        "blocked": ["draft"],
    },
    "every": {
        "access": "selected",
        "tools": EVERY_READ + ["gzip-file-as-resource", "get-annotated-message"],
        "read": EVERY_READ + ["get-env"],
        "stale": ["get-annotated-message"],
    },
    "modern": {
        "access": "read",
        "read": ["add", "echo", "count", "big", "fail", "reject", "liar", "forecast"],
        "write": ["erase"],
        "blocked": ["draft"],
    },
    "slow": {"access": "read", "read": ["stall"]},
}
NEVER_SEEN = ("erase", "draft", "the caller's credential")


def listed(slug):
    """The server's own names of the tools that the key must see."""
    policy = POLICY[slug]
    return sorted(name for name in policy["read"] if name in policy.get("tools", policy["read"]))


def judge(case, exposed, answer, through_gate):
    """None when `answer` is what the client must see, else what is wrong with it."""
    kind, want = case.want
    if kind == "unknown":
        right = answer.get("error", {}).get("code") == -32602
        return None if right else f"wanted -32602, got {answer}"
    if "result" not in answer:
        return f"the client raised: {answer.get('error', answer)}"
    result = answer["result"]
    words = "".join(block.get("text", "") or block.get("uri", "") for block in result.get("content", []))
    failed = bool(result.get("isError"))
    if kind == "refused":
        return judge_refusal(want, exposed, result, words, answer.get("hides"))
    if failed != (kind == "failed"):
        return f"isError is {failed}: {words[:300]}"
    if kind == "structured" and result.get("structuredContent") != want:
        return f"structuredContent is {result.get('structuredContent')}"
    if kind in ("text", "failed") and want not in words and want not in str(result.get("structuredContent")):
        return f"{want!r} is not in {words[:300]!r}"
    if case.progress and answer.get("progress", 0) < case.progress:
        return f"{answer.get('progress')} progress notifications instead of {case.progress}"
    if through_gate and "toolgate/refusal" in str(result.get("_meta")):
        return f"marked as a refusal: {result}"
    return None


def judge_refusal(code, exposed, result, words, hides):
    """A refusal must reach the model: as text, naming the tool, with the code beside it."""
    error = (result.get("structuredContent") or {}).get("error", {})
    if not result.get("isError"):
        return f"not refused: {words[:300]}"
    if error.get("code") != code:
        return f"refused as {error.get('code')}, not {code}: {words[:300]}"
    if error.get("message") != words:
        return f"the text and structuredContent differ: {words!r} / {error.get('message')!r}"
    if f"`{exposed}`" not in words:
        return f"the message does not name `{exposed}`: {words}"
    marker = (result.get("_meta") or {}).get("toolgate/refusal", {})
    if hides == "_meta":
        return None
    if marker.get("code") != code or not str(marker.get("request_id", "")).startswith("req_"):
        return f"toolgate/refusal is {marker}"
    return None
