"""The part of a Python driver that does not depend on the SDK's version; the script is that of driver.mjs."""

import json
import sys

import anyio

CALL_TIMEOUT_S = 30


async def drive(connect):
    """Plays the script on stdin; `connect(url, token, mode)` is an async context manager that gives a peer."""
    script = json.loads(sys.stdin.readline())
    for session in script["sessions"]:
        opened = False
        try:
            with anyio.fail_after(CALL_TIMEOUT_S * (len(session["steps"]) + 1)):
                async with connect(session["url"], session["token"], script["mode"]) as peer:
                    opened = True
                    say({})
                    for step in session["steps"]:
                        await answer(peer, step)
        except BaseException as error:
            if not opened:
                say(failure(error))
                for _ in session["steps"]:
                    say({"error": {"code": None, "message": "not connected"}})
            else:
                print(f"closing: {error!r}", file=sys.stderr)


async def answer(peer, step):
    """Takes one step and says what came of it."""
    try:
        if step["op"] == "wait":
            say({"waiting": True})
            await anyio.to_thread.run_sync(sys.stdin.readline)
            say({})
            return
        with anyio.fail_after(CALL_TIMEOUT_S):
            if step["op"] == "list":
                say({"tools": [tool async for tool in every_tool(peer)]})
                return
            count = 0

            async def on_progress(*_):
                nonlocal count
                count += 1

            result = await peer.call_tool(
                step["name"], step["arguments"], progress_callback=on_progress if step.get("progress") else None
            )
            say({"result": result.model_dump(mode="json", by_alias=True, exclude_none=True), "progress": count})
    except Exception as error:
        say(failure(error))


async def every_tool(peer):
    """The tools of all pages; 1.x and 2.x name the cursor differently."""
    cursor = None
    while True:
        page = await (peer.list_tools(cursor=cursor) if cursor else peer.list_tools())
        for tool in page.tools:
            yield tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor:
            return


def failure(error):
    """An error as the runner reads it: the innermost one of a group, its JSON-RPC code if it has one."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    inner = getattr(error, "error", error)
    message = getattr(inner, "message", None) or str(error) or repr(error)
    return {"error": {"code": getattr(inner, "code", None), "message": message}}


def say(line):
    """One line of JSON, at once."""
    print(json.dumps(line), flush=True)
