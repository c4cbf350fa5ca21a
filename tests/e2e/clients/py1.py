"""Python SDK 1.x (initialize); see driver.py."""

import contextlib

import anyio
from driver import drive
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


@contextlib.asynccontextmanager
async def connect(url, token, _mode):
    headers = {"Authorization": f"Bearer {token}"}
    async with streamablehttp_client(url, headers=headers) as (read, write, _session_id):
        async with ClientSession(read, write) as session:
            await session.initialize()
            yield session


anyio.run(drive, connect)
