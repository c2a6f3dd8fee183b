// A reverse proxy that serves a gateway below a path, as an operator's proxy does beside other services.
import { createServer, request as send } from "node:http";

export const PREFIX = "/gate";

// `removes`: whether the gateway gets paths without the prefix. `outside` lists the requests that were not below it.
export async function startProxy({ removes }) {
  let target;
  const outside = [];
  const server = createServer((request, response) => {
    const rest = request.url.slice(PREFIX.length);
    if (!request.url.startsWith(PREFIX) || !["", "/", "?"].includes(rest.slice(0, 1))) {
      outside.push(`${request.method} ${request.url}`);
      response.writeHead(404).end("Another service");
      return;
    }
    const headers = { ...request.headers, host: target.host, "x-forwarded-for": request.socket.remoteAddress, "x-forwarded-proto": "http" };
    const path = removes ? `${rest.startsWith("/") ? "" : "/"}${rest}` : request.url;
    const forwarded = send({ host: target.hostname, port: target.port, method: request.method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.rawHeaders);
      answer.pipe(response);
    });
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    base: `http://127.0.0.1:${server.address().port}${PREFIX}`,
    outside,
    forwardTo: (base) => { target = new URL(base); },
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}
