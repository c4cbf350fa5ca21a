// TypeScript SDK 1.x. Reads a script (one JSON line on stdin), writes one JSON line a step; see driver.mjs.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { drive } from './driver.mjs';

await drive(async ({ url, token }) => {
  const client = new Client({ name: 'e2e-ts1', version: '1' }, { capabilities: {} });
  const headers = { Authorization: `Bearer ${token}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);
  return {
    list: async () => (await client.listTools()).tools,
    call: (request, options) => client.callTool(request, undefined, options),
    close: async () => {
      await transport.terminateSession().catch(() => {});
      await client.close();
    },
  };
});
