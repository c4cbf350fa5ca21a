// TypeScript SDK 2.x: mode `default` (initialize), `auto` (probes) or a pinned revision; see driver.mjs.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { drive } from './driver.mjs';

await drive(async ({ url, token, mode }) => {
  const options = { capabilities: {} };
  if (mode === 'auto') options.versionNegotiation = { mode: 'auto' };
  else if (mode !== 'default') options.versionNegotiation = { mode: { pin: mode } };
  const client = new Client({ name: 'e2e-ts2', version: '1' }, options);
  const headers = { Authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return {
    list: async () => (await client.listTools()).tools,
    call: (request, options) => client.callTool(request, options),
    close: () => client.close(),
  };
});
