// An OpenID provider on loopback: discovery, keys, a page on which the person is chosen, and ID tokens signed with ES256.
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { createServer } from "node:http";

export const CLIENT = { id: "tollgate", secret: "a client's secret" };

const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

// `people`: claims by the name of the person's button. `changes` may change those of each ID token, and `refused` lists what was
// wrong with requests for one.
export async function startOpenid(people) {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const codes = new Map();
  const refused = [];
  const provider = { issuer: undefined, refused, changes: (claims) => claims, stop };

  // A button for each person, and one that returns without a sign-in.
  function choose(query) {
    const back = (fields) => {
      const address = new URL(query.get("redirect_uri"));
      const all = { ...fields, state: query.get("state"), iss: provider.issuer };
      for (const [name, value] of Object.entries(all)) address.searchParams.set(name, value);
      return address.href;
    };
    const link = (text, fields) => `<a href="${back(fields).replaceAll("&", "&amp;")}">${text}</a>`;
    if (query.get("prompt") === "none") return { status: 302, headers: { location: back({ error: "login_required" }) } };
    const links = Object.keys(people).map((name) => {
      const code = randomBytes(16).toString("hex");
      codes.set(code, { name, query });
      return link(name, { code });
    });
    links.push(link("Cancel", { error: "access_denied", error_description: "not now" }));
    return { status: 200, type: "text/html", body: `<!doctype html><title>Who are you?</title><h1>Who are you?</h1>${links.join("<br>")}` };
  }

  function redeem(form, authorization) {
    const fail = (error, why) => {
      refused.push(why);
      return { status: error === "invalid_client" ? 401 : 400, body: { error } };
    };
    const pair = Buffer.from(authorization.replace("Basic ", ""), "base64").toString().split(":");
    const [id, secret] = pair.map((part) => decodeURIComponent(part.replaceAll("+", " ")));
    if (id !== CLIENT.id || secret !== CLIENT.secret) return fail("invalid_client", "the client");
    const code = codes.get(form.get("code"));
    codes.delete(form.get("code"));
    if (code === undefined) return fail("invalid_grant", "the code");
    const { name, query } = code;
    if (form.get("grant_type") !== "authorization_code") return fail("unsupported_grant_type", "the grant type");
    if (form.get("redirect_uri") !== query.get("redirect_uri")) return fail("invalid_grant", "the redirect address");
    const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
    const isProved = query.get("code_challenge_method") === "S256" && query.get("code_challenge") === challenge;
    if (!isProved) return fail("invalid_grant", "the verifier");
    const now = Math.floor(Date.now() / 1000);
    const own = { iss: provider.issuer, aud: CLIENT.id, nonce: query.get("nonce"), iat: now, exp: now + 300, ...people[name] };
    const message = `${encode({ alg: "ES256", kid: "one" })}.${encode(provider.changes(own))}`;
    const signature = sign("sha256", Buffer.from(message), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url");
    return { status: 200, body: { id_token: `${message}.${signature}`, access_token: "unused", token_type: "Bearer" } };
  }

  function answer(request, body) {
    const { pathname, searchParams } = new URL(request.url, provider.issuer);
    const at = (path) => `${provider.issuer}${path}`;
    switch (pathname) {
      case "/.well-known/openid-configuration":
        return { status: 200, body: {
          issuer: provider.issuer, authorization_endpoint: at("/authorize"), token_endpoint: at("/token"), jwks_uri: at("/keys"),
        } };
      case "/keys":
        return { status: 200, body: { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "one", use: "sig", alg: "ES256" }] } };
      case "/authorize":
        return choose(searchParams);
      case "/token":
        return redeem(new URLSearchParams(body), request.headers.authorization ?? "");
      default:
        return { status: 404, body: {} };
    }
  }

  const server = createServer(async (request, response) => {
    let sent = "";
    for await (const part of request) sent += part;
    const { status, headers = {}, type = "application/json", body = {} } = answer(request, sent);
    response.writeHead(status, { "content-type": type, ...headers }).end(typeof body === "string" ? body : JSON.stringify(body));
  });
  function stop() {
    server.closeAllConnections();
    server.close();
  }
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  provider.issuer = `http://127.0.0.1:${server.address().port}`;
  return provider;
}
