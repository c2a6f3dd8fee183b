// A real OpenID provider on a free port. It signs every browser in as `provider.account`, without a page.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

export const SECRET = "a-client-secret with special characters: %&+";

const key = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }),
  alg,
  kid: `key-${alg}`,
  use: "sig",
});

// `callback` is the clients' redirect URI; `people` are claims by account.
export async function startProvider(callback, people) {
  let handle;
  const server = createServer((request, response) => handle(request, response));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const client = { redirect_uris: [callback], grant_types: ["authorization_code"], response_types: ["code"] };
  const provider = new Provider(issuer, {
    clients: [
      { ...client, client_id: "tollgate", client_secret: SECRET, token_endpoint_auth_method: "client_secret_basic" },
      { ...client, client_id: "public", token_endpoint_auth_method: "none", id_token_signed_response_alg: "ES256" },
    ],
    jwks: { keys: [key("rsa", { modulusLength: 2048 }, "RS256"), key("ec", { namedCurve: "P-256" }, "ES256")] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["preferred_username"], groups: ["groups"] },
    scopes: ["openid", "email", "profile", "groups"],
    cookies: { keys: ["only for tests"] },
    features: { devInteractions: { enabled: false } },
    pkce: { required: () => true },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id, ...people[id] }) }),
  });
  const started = { issuer, account: undefined, stop: () => server.closeAllConnections() ?? server.close() };
  const forward = provider.callback();
  handle = async (request, response) => {
    if (!request.url.startsWith("/interaction/")) return forward(request, response);
    const { prompt, params, session } = await provider.interactionDetails(request, response);
    let result;
    if (started.account === undefined) {
      result = { error: "access_denied", error_description: "the person clicked cancel" };
    } else if (prompt.name === "login") {
      result = { login: { accountId: started.account } };
    } else {
      const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
      grant.addOIDCScope(params.scope);
      result = { consent: { grantId: await grant.save() } };
    }
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  };
  return started;
}
