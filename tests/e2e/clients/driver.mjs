// The part of a driver that does not depend on the SDK's version.
//
// stdin, line 1: {"mode": M, "sessions": [{"url": U, "token": T, "steps": [STEP, …]}, …]}; a STEP is
//   {"op": "list"} | {"op": "call", "name": N, "arguments": A, "progress": BOOL} | {"op": "wait"}
// stdout: one line for the connect of each session and one for each step, in order:
//   {"tools": […]} | {"result": R, "progress": COUNT} | {"error": {"code": C, "message": M}} | {}
// `wait` answers {"waiting": true} and goes on when stdin has another line.
import readline from 'node:readline';

const CALL_TIMEOUT_MS = 30_000;

export async function drive(connect) {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const script = JSON.parse((await lines.next()).value);
  for (const session of script.sessions) {
    let peer;
    await answer(async () => {
      peer = await connect({ url: session.url, token: session.token, mode: script.mode });
      return {};
    });
    for (const step of session.steps) await answer(() => take(peer, step, lines));
    await peer?.close().catch(() => {});
  }
  process.exit(0);
}

async function take(peer, step, lines) {
  if (step.op === 'wait') {
    say({ waiting: true });
    await lines.next();
    return {};
  }
  if (!peer) throw new Error('not connected');
  if (step.op === 'list') return { tools: await peer.list() };
  let progress = 0;
  const options = { timeout: CALL_TIMEOUT_MS };
  if (step.progress) options.onprogress = () => { progress += 1; };
  const result = await peer.call({ name: step.name, arguments: step.arguments }, options);
  return { result, progress };
}

async function answer(work) {
  try {
    say(await work());
  } catch (error) {
    say({ error: { code: error?.code ?? null, message: String(error?.message ?? error) } });
  }
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
