// A gateway of the tests' own: it says what it is told to and notes what it is asked.
import { createServer } from "node:http";

export const GATEWAY = process.env.COMBEE_TEST_GATEWAY;
export const MODEL = process.env.COMBEE_TEST_MODEL;
export const PLAYBOOK = "support/refunds";

/** Serve `answer(request, body)` → {status, json, headers}; a function as answer takes the response itself. */
export async function gateway(t, answer) {
  const asked = [];
  const sockets = new Set();
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    asked.push({ method: request.method, url: request.url, headers: request.headers, body: body && JSON.parse(body) });
    const said = answer(asked.at(-1), asked);
    if (typeof said === "function") return said(response);
    response.writeHead(said.status ?? 200, { "Content-Type": "application/json", ...said.headers });
    response.end(said.json === undefined ? "" : JSON.stringify(said.json));
  });
  server.on("connection", (socket) => sockets.add(socket));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, asked, cut: () => sockets.forEach((s) => s.destroy()) };
}

export const accepted = (asked) => ({ status: 202, json: { accepted: asked.body.length, items: [] } });

/** What resolves when it is called. Its deadline keeps the process alive, which the client's stream does not. */
export function signal() {
  let told;
  const come = new Promise((resolve, reject) => {
    const deadline = setTimeout(() => reject(new Error("nothing came in time")), 60_000);
    told = (what) => {
      clearTimeout(deadline);
      resolve(what);
    };
  });
  return { told, come };
}
